// How classes whose selectors hide_api may hide answer questions about themselves.
// Threads: any. Ownership: none.
#pragma once

#import <Foundation/Foundation.h>

namespace coremlsim {

bool is_selector_hidden(Class cls, SEL selector, bool is_class_method);

}  // namespace coremlsim

// In every class that the table of api_gate.mm names. (Adding these at run time does not reach the GNU runtime's
// metaclasses.)
#define CORE_ML_SIMULATOR_GATED                                                                                  \
  -(BOOL)respondsToSelector : (SEL)selector {                                                                    \
    return !coremlsim::is_selector_hidden([self class], selector, false) && [super respondsToSelector:selector]; \
  }                                                                                                              \
  +(BOOL)respondsToSelector : (SEL)selector {                                                                    \
    return !coremlsim::is_selector_hidden([self class], selector, true) && [super respondsToSelector:selector];  \
  }                                                                                                              \
  +(BOOL)instancesRespondToSelector : (SEL)selector {                                                            \
    return !coremlsim::is_selector_hidden([self class], selector, false) &&                                      \
           [super instancesRespondToSelector:selector];                                                          \
  }
