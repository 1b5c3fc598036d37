#include "kvbacking/session.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "bind/arrays.h"
#include "bind/bind.h"
#include "bind/gil.h"
#include "bind/inputs.h"
#include "bind/reaper.h"
#include "kvbacking/host.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace kvbacking::bind {
namespace {

using ExternalSets = std::vector<std::vector<std::pair<std::string, nb::object>>>;

std::vector<std::vector<ExternalStorage>> external_storage(const ExternalSets& sets) {
  std::vector<std::vector<ExternalStorage>> result;
  for (const auto& set : sets) {
    std::vector<ExternalStorage>& storages = result.emplace_back();
    for (const auto& [output, object] : set) {
      if (nb::isinstance<OwnedSurface>(object)) {
        auto surface = nb::cast<std::shared_ptr<OwnedSurface>>(object);
        storages.push_back({output, nullptr, surface->layout(), nullptr, surface});
        continue;
      }
      WritableArray array;
      if (!nb::try_cast(object, array)) {
        throw Error(ErrorCode::kInvalidArgument,
                    "[bind::external_storage] output '" + output + "': exports no writable memory of the CPU");
      }
      storages.push_back({output, array.data(), layout_of(array), own_import(array)});
    }
  }
  return result;
}

std::shared_ptr<Session> create(std::shared_ptr<Model> model, const Contract& contract, Mechanism mechanism,
                                std::size_t depth, OnIgnored on_ignored, Verify verify, Reuse reuse, int scan_threads,
                                const ExternalSets& external, bool allow_input_surfaces) {
  drain_reaper();
  SessionOptions options;
  options.mechanism = mechanism;
  options.depth = depth;
  options.on_ignored = on_ignored;
  options.verify = verify;
  options.reuse = reuse;
  options.scan_threads = scan_threads;
  options.external = external_storage(external);
  options.allow_input_surfaces = allow_input_surfaces;
  const GilReleased release;
  require_same_process();
  return Session::create(std::move(model), contract, std::move(options));
}

std::unique_ptr<Prediction> predict(Session& session, const nb::dict& inputs, std::optional<std::int64_t> live,
                                    std::optional<std::uint8_t> fill_byte, std::shared_ptr<State> state,
                                    std::vector<std::string> borrow, bool borrow_required) {
  drain_reaper();
  const Inputs arrays(inputs, {borrow_required ? Lending::kRequired : Lending::kIfPossible, std::move(borrow)});
  const GilReleased release;
  require_same_process();
  return session.predict(arrays.native(), {live, fill_byte, std::move(state)});
}

// The capsule owns the View, the View holds the lease (and a surface's read lock): nothing points back.
nb::object view(const Prediction& prediction, const std::string& name) {
  std::unique_ptr<View> view;
  {
    const GilReleased release;
    view = prediction.view(name);
  }
  const void* const data = view->data();
  const Layout layout = view->layout();
  nb::capsule owner(view.get(), [](void* p) noexcept { delete static_cast<View*>(p); });
  view.release();
  return numpy_view(data, layout, owner);
}

void init_enums(nb::module_& m) {
  nb::enum_<Mechanism>(m, "Mechanism")
      .value("framework", Mechanism::kFramework)
      .value("raw", Mechanism::kRaw)
      .value("surface", Mechanism::kSurface)
      .value("pool", Mechanism::kPool)
      .value("external", Mechanism::kExternal);
  nb::enum_<Reuse>(m, "Reuse").value("same", Reuse::kSame).value("rewrap", Reuse::kRewrap).value("new", Reuse::kNew);
  nb::enum_<Verify>(m, "Verify")
      .value("off", Verify::kOff)
      .value("layout", Verify::kLayout)
      .value("scan", Verify::kScan)
      .value("full", Verify::kFull);
  nb::enum_<OnIgnored>(m, "OnIgnored").value("copy", OnIgnored::kCopy).value("error", OnIgnored::kRaise);
}

}  // namespace

void init_session(nb::module_& m) {
  init_enums(m);
  nb::class_<SessionStats>(m, "SessionStats")
      .def_ro("predictions", &SessionStats::predictions)
      .def_ro("proposed", &SessionStats::proposed)
      .def_ro("accepted", &SessionStats::accepted)
      .def_ro("ignored", &SessionStats::ignored)
      .def_ro("copied", &SessionStats::copied)
      .def_ro("failed", &SessionStats::failed)
      .def_ro("bytes_copied", &SessionStats::bytes_copied)
      .def_ro("input_bytes_copied", &SessionStats::input_bytes_copied)
      .def_ro("input_buffers_created", &SessionStats::input_buffers_created)
      .def_ro("sets_created", &SessionStats::sets_created)
      .def_ro("quarantined", &SessionStats::quarantined)
      .def_ro("backing_in_use", &SessionStats::backing_in_use)
      .def_ro("degraded_reason", &SessionStats::degraded_reason);
  nb::class_<Prediction>(m, "Prediction")
      .def_prop_ro(
          "path", [](const Prediction& self) { return path_name(self.path()); },
          nb::sig("def path(self) -> typing.Literal['backing', 'copy', 'framework']"))
      .def("names", &Prediction::names, "Backed outputs first, then the others, in the contract's order.")
      .def("evidence", nb::overload_cast<>(&Prediction::evidence, nb::const_), "One record per output.")
      .def("inputs", &Prediction::inputs, "How each input reached the framework.")
      .def_prop_ro("live", &Prediction::live)
      .def_prop_ro("predict_ns", &Prediction::predict_ns)
      .def_prop_ro("verify_ns", &Prediction::verify_ns)
      .def_prop_ro("copy_ns", &Prediction::copy_ns)
      .def("view", &view, "name"_a, nb::sig("def view(self, name: str) -> numpy.ndarray"),
           "A read-only array over the output's memory that keeps the set busy. Never copies. Raises BackingInUseError "
           "after release().")
      .def("release", &Prediction::release, nb::call_guard<GilReleased>(), "Lets go of the set; idempotent.")
      .def_prop_ro("released", &Prediction::released);
  nb::class_<Session>(m, "Session")
      .def_static("create", &create, "model"_a, "contract"_a, nb::kw_only(), "mechanism"_a, "depth"_a, "on_ignored"_a,
                  "verify"_a, "reuse"_a, "scan_threads"_a = 1, "external"_a = ExternalSets(),
                  "allow_input_surfaces"_a = false,
                  "Refuses everything that can be refused before a prediction: ContractError, AllocationError.")
      .def("predict", &predict, "inputs"_a, nb::kw_only(), "live"_a = nb::none(), "fill_byte"_a = nb::none(),
           "state"_a = nb::none(), "borrow"_a = std::vector<std::string>(), "borrow_required"_a = true,
           nb::sig("def predict(self, inputs: dict[str, numpy.ndarray | OwnedSurface], *, live: int | None = None, "
                   "fill_byte: int | None = None, state: State | None = None, borrow: collections.abc.Sequence[str] = "
                   "[], borrow_required: bool = True) -> Prediction"),
           "One prediction into the lowest free set. Copies the inputs but those in `borrow` and surfaces; the GIL is "
           "released.")
      .def("stats", &Session::stats, "Counters since the session was made.")
      .def(
          "close",
          [](Session& self) {
            {
              const GilReleased release;
              self.close();
            }
            drain_reaper();
          },
          "Idempotent; predictions and views stay valid.")
      .def_prop_ro("closed", &Session::closed);
}

}  // namespace kvbacking::bind
