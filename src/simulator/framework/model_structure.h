// MLModelStructure from a compiled package: which operations a program has.
// Threads: any; the result is immutable. Ownership: results are autoreleased.
#pragma once

#import <CoreML/CoreML.h>

// In every class whose only instance variable is its storage.
#define DELETE_STORAGE \
  -(void)dealloc {     \
    delete _storage;   \
    [super dealloc];   \
  }

namespace coremlsim {

// `only`: nil for every function of the package. nil with the NSError when the package cannot be read.
MLModelStructure* make_structure(NSURL* url, NSString* only, NSError** error);
// The operation's estimated share of its program, 0 to 1.
double cost_of(MLModelStructureProgramOperation* operation);

}  // namespace coremlsim
