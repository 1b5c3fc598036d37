// Compute devices, and what a compute plan says about a program's operations.
// Threads: immutable; completion handlers run on any thread.
// Ownership: properties are borrowed from the plan or structure that they describe.
#pragma once

#import <CoreML/MLBase.h>

NS_ASSUME_NONNULL_BEGIN

API_AVAILABLE(macos(14.0))
@protocol MLComputeDeviceProtocol <NSObject>
@end

ML_FINAL API_AVAILABLE(macos(14.0)) @interface MLCPUComputeDevice : NSObject<MLComputeDeviceProtocol>
ML_NO_INIT
@end
ML_FINAL API_AVAILABLE(macos(14.0)) @interface MLGPUComputeDevice : NSObject<MLComputeDeviceProtocol>
ML_NO_INIT
@end
ML_FINAL API_AVAILABLE(macos(14.0)) @interface MLNeuralEngineComputeDevice : NSObject<MLComputeDeviceProtocol>
ML_NO_INIT
@property(readonly, nonatomic, assign) NSInteger totalCoreCount;
@end
ML_EXPORT NSArray<id<MLComputeDeviceProtocol>>* MLAllComputeDevices(void) API_AVAILABLE(macos(14.0));

@class MLModelStructureProgram, MLModelStructureProgramFunction, MLModelStructureProgramBlock;

ML_FINAL API_AVAILABLE(macos(14.4)) @interface MLModelStructureProgramBinding : NSObject
ML_STORAGE(MLModelStructureProgramBinding)
ML_NO_INIT
@property(readonly, nonatomic, copy, nullable) NSString* name;
@end

ML_FINAL API_AVAILABLE(macos(14.4)) @interface MLModelStructureProgramArgument : NSObject
ML_STORAGE(MLModelStructureProgramArgument)
ML_NO_INIT
@property(readonly, nonatomic, copy) NSArray<MLModelStructureProgramBinding*>* bindings;
@end

ML_FINAL API_AVAILABLE(macos(14.4)) @interface MLModelStructureProgramNamedValueType : NSObject
ML_STORAGE(MLModelStructureProgramNamedValueType)
ML_NO_INIT
@property(readonly, nonatomic, copy) NSString* name;
@end

ML_FINAL API_AVAILABLE(macos(14.4)) @interface MLModelStructureProgramOperation : NSObject
ML_STORAGE(MLModelStructureProgramOperation)
ML_NO_INIT
@property(readonly, nonatomic, copy) NSString* operatorName;
@property(readonly, nonatomic, copy) NSDictionary<NSString*, MLModelStructureProgramArgument*>* inputs;
@property(readonly, nonatomic, copy) NSArray<MLModelStructureProgramNamedValueType*>* outputs;
@property(readonly, nonatomic, copy) NSArray<MLModelStructureProgramBlock*>* blocks;
@end

ML_FINAL API_AVAILABLE(macos(14.4)) @interface MLModelStructureProgramBlock : NSObject
ML_STORAGE(MLModelStructureProgramBlock)
ML_NO_INIT
@property(readonly, nonatomic, copy) NSArray<MLModelStructureProgramNamedValueType*>* inputs;
@property(readonly, nonatomic, copy) NSArray<NSString*>* outputNames;
@property(readonly, nonatomic, copy) NSArray<MLModelStructureProgramOperation*>* operations;
@end

ML_FINAL API_AVAILABLE(macos(14.4)) @interface MLModelStructureProgramFunction : NSObject
ML_STORAGE(MLModelStructureProgramFunction)
ML_NO_INIT
@property(readonly, nonatomic, copy) NSArray<MLModelStructureProgramNamedValueType*>* inputs;
@property(readonly, nonatomic, strong) MLModelStructureProgramBlock* block;
@end

ML_FINAL API_AVAILABLE(macos(14.4)) @interface MLModelStructureProgram : NSObject
ML_STORAGE(MLModelStructureProgram)
ML_NO_INIT
@property(readonly, nonatomic, copy) NSDictionary<NSString*, MLModelStructureProgramFunction*>* functions;
@end

ML_FINAL API_AVAILABLE(macos(14.4)) @interface MLModelStructureNeuralNetworkLayer : NSObject
ML_STORAGE(MLModelStructureNeuralNetworkLayer)
ML_NO_INIT
@property(readonly, nonatomic, copy) NSString* name;
@property(readonly, nonatomic, copy) NSString* type;
@property(readonly, nonatomic, copy) NSArray<NSString*>* inputNames;
@property(readonly, nonatomic, copy) NSArray<NSString*>* outputNames;
@end

ML_FINAL API_AVAILABLE(macos(14.4)) @interface MLModelStructureNeuralNetwork : NSObject
ML_STORAGE(MLModelStructureNeuralNetwork)
ML_NO_INIT
@property(readonly, nonatomic, copy) NSArray<MLModelStructureNeuralNetworkLayer*>* layers;
@end

API_AVAILABLE(macos(14.4))
@interface MLModelStructure : NSObject
ML_STORAGE(MLModelStructure)
ML_NO_INIT
+ (void)loadContentsOfURL:(NSURL*)url
        completionHandler:(void (^)(MLModelStructure* _Nullable structure, NSError* _Nullable error))handler;
@property(readonly, nonatomic, strong, nullable) MLModelStructureNeuralNetwork* neuralNetwork;
@property(readonly, nonatomic, strong, nullable) MLModelStructureProgram* program;
@end

ML_FINAL API_AVAILABLE(macos(14.4)) @interface MLComputePlanCost : NSObject
ML_STORAGE(MLComputePlanCost)
ML_NO_INIT
@property(readonly, nonatomic, assign) double weight;
@end

ML_FINAL API_AVAILABLE(macos(14.4)) @interface MLComputePlanDeviceUsage : NSObject
ML_STORAGE(MLComputePlanDeviceUsage)
ML_NO_INIT
@property(readonly, nonatomic, copy) NSArray<id<MLComputeDeviceProtocol>>* supportedComputeDevices;
@property(readonly, nonatomic, strong) id<MLComputeDeviceProtocol> preferredComputeDevice;
@end

ML_FINAL API_AVAILABLE(macos(14.4)) @interface MLComputePlan : NSObject
ML_STORAGE(MLComputePlan)
ML_NO_INIT
+ (void)loadContentsOfURL:(NSURL*)url
            configuration:(MLModelConfiguration*)configuration
        completionHandler:(void (^)(MLComputePlan* _Nullable plan, NSError* _Nullable error))handler;
- (nullable MLComputePlanCost*)estimatedCostOfMLProgramOperation:(MLModelStructureProgramOperation*)operation;
- (nullable MLComputePlanDeviceUsage*)computeDeviceUsageForNeuralNetworkLayer:
    (MLModelStructureNeuralNetworkLayer*)layer;
- (nullable MLComputePlanDeviceUsage*)computeDeviceUsageForMLProgramOperation:
    (MLModelStructureProgramOperation*)operation;
@property(readonly, nonatomic, strong) MLModelStructure* modelStructure;
@end

NS_ASSUME_NONNULL_END
