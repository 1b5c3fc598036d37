// The subset of the public Core ML API that this project uses: one set of own declarations for the simulator and for
// the macOS cross-build. Selectors, types, nullability and availability as in Apple's documentation.
// Threads and ownership: documented per class; Objective-C naming rules (alloc, new, copy return +1).
#pragma once

#import <CoreML/MLBase.h>
#import <CoreML/MLComputePlan.h>
#import <CoreML/MLFeatureValue.h>
#import <CoreML/MLModel.h>
#import <CoreML/MLModelDescription.h>
#import <CoreML/MLMultiArray.h>
