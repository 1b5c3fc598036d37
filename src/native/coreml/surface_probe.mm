#include "kvbacking/surface_probe.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "coreml/guard.h"
#import "coreml/inputs.h"
#import "coreml/model_impl.h"
#import "coreml/nserror.h"
#import "coreml/predict.h"
#import "coreml/surface.h"
#include "kvbacking/host.h"

namespace kvbacking {
namespace {

class SurfaceProbe {
 public:
  SurfaceProbe(Model& model, const std::vector<InputArray>& inputs, const std::string& output)
      : model_(model.impl()), inputs_(inputs), plan_(find_output(output)), name_(retain(to_nsstring(output))) {
    spec_ = {plan_.dense->dtype, plan_.dense->shape};
    if (auto reason = surface_refusal(spec_)) {
      throw failures_error(ErrorCode::kContract, "[probe_surface] the output cannot live in a surface",
                           {{output, "surface_limits", "an output that fits a surface", *reason}});
    }
  }

  std::vector<SurfaceProbeStep> run() {
    step("fresh", [](Surface&, MLMultiArray*) {});
    step("read by handler", [](Surface&, MLMultiArray* array) {
      [array getBytesWithHandler:^(const void*, NSInteger){
      }];
    });
    step("read under lock",
         [](Surface& surface, MLMultiArray*) { const PixelReadLock lock(surface_reference(surface)); });
    step("second prediction", [this](Surface&, MLMultiArray* array) { predict_into(array); });
    locked_step();
    input_step();
    return std::move(steps_);
  }

 private:
  const FeaturePlan& find_output(const std::string& output) const {
    const auto found = model_.output_plans.find(output);
    if (found == model_.output_plans.end() || !found->second.dense) {
      throw failures_error(ErrorCode::kContract, "[probe_surface] the output cannot be probed",
                           {{output, "name", "an output of a fixed shape", "none of that name"}});
    }
    return found->second;
  }

  static CfPtr<CVPixelBufferRef> surface_reference(Surface& surface) {
    return CfPtr<CVPixelBufferRef>::retain(surface.pixel_buffer());
  }

  // Predicts once with `array` proposed. What is wrong is thrown; the result tells whether it came back.
  bool predict_into(MLMultiArray* array) {
    const PreparedInputs inputs = prepare_inputs(model_, inputs_, false);
    return predict_into(array, inputs.provider.get());
  }

  bool predict_into(MLMultiArray* array, id<MLFeatureProvider> provider) {
    auto proposals = adopt([[NSMutableDictionary<NSString*, id> alloc] initWithCapacity:1]);
    [proposals.get() setObject:array forKey:name_.get()];
    auto options = adopt([[MLPredictionOptions alloc] init]);
    [options.get() setOutputBackings:proposals.get()];
    const RawPrediction raw = run_prediction(model_, provider, options.get(), nullptr);
    return [[raw.features.get() featureValueForName:name_.get()] multiArrayValue] == array;
  }

  using Treatment = std::function<void(Surface& surface, MLMultiArray* array)>;

  void step(const char* name, const Treatment& treat) {
    SurfaceProbeStep result;
    result.step = name;
    try {
      guarded("probe_surface", ErrorCode::kPrediction, [&] {
        const auto surface = Surface::create(spec_);
        result.bytes_per_row = static_cast<std::int64_t>(surface->bytes_per_row());
        const auto array = wrap_pixel_buffer(surface->pixel_buffer(), plan_.geometry.shape.get());
        treat(*surface, array.get());
        result.outcome = predict_into(array.get()) ? "accepted" : "ignored";
      });
    } catch (const Error& error) {
      note(result, error);
    }
    steps_.push_back(std::move(result));
  }

  void locked_step() {
    std::optional<PixelReadLock> lock;  // held while the step predicts
    step("locked", [&](Surface& surface, MLMultiArray*) { lock.emplace(surface_reference(surface)); });
  }

  void input_step() {
    const auto fits = [this](const FeaturePlan& input) { return input.dense && *input.dense == *plan_.dense; };
    const auto input = std::find_if(model_.input_plans.begin(), model_.input_plans.end(), fits);
    if (input == model_.input_plans.end()) {
      SurfaceProbeStep skipped;
      skipped.step = "used as input";
      skipped.outcome = "skipped";
      skipped.message = "no input has the output's shape and dtype";
      steps_.push_back(std::move(skipped));
      return;
    }
    step("used as input", [&](Surface&, MLMultiArray* array) {
      const PreparedInputs inputs = prepare_inputs(model_, inputs_, false);
      auto features = adopt([[NSMutableDictionary<NSString*, MLFeatureValue*> alloc] initWithCapacity:1]);
      for (NSString* name in [inputs.provider.get() featureNames]) {
        MLFeatureValue* const value = [name isEqualToString:input->name.get()]
                                          ? [MLFeatureValue featureValueWithMultiArray:array]
                                          : [inputs.provider.get() featureValueForName:name];
        [features.get() setObject:value forKey:name];
      }
      NSError* error = nil;
      auto provider = adopt([[MLDictionaryFeatureProvider alloc] initWithDictionary:features.get() error:&error]);
      if (!provider) throw nserror_error(ErrorCode::kPrediction, "probe_surface", error);
      run_prediction(model_, provider.get(), model_.plain_options.get(), nullptr);
    });
  }

  static void note(SurfaceProbeStep& result, const Error& error) {
    result.outcome = "error";
    result.message = error.what();
    for (const auto& [key, value] : error.details()) {
      if (const auto* text = std::get_if<std::string>(&value); text && key == "domain") result.domain = *text;
      if (const auto* number = std::get_if<std::int64_t>(&value); number && key == "code") result.code = *number;
    }
  }

  Model::Impl& model_;
  const std::vector<InputArray>& inputs_;
  const FeaturePlan& plan_;
  RetainPtr<NSString*> name_;
  SurfaceSpec spec_;
  std::vector<SurfaceProbeStep> steps_;
};

}  // namespace

std::vector<SurfaceProbeStep> probe_surface(const std::shared_ptr<Model>& model, const std::vector<InputArray>& inputs,
                                            const std::string& output) {
  require_same_process();
  return guarded("probe_surface", ErrorCode::kPrediction, [&] {
    require_inputs(model->impl(), inputs);
    return SurfaceProbe(*model, inputs, output).run();
  });
}

}  // namespace kvbacking
