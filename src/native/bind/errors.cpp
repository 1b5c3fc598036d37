// The one translator: every native Error becomes the Python exception of its code, built by kvbacking.errors with the
// message, the details as attributes and the failed checks.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/bind.h"
#include "kvbacking/error.h"

namespace nb = nanobind;

namespace kvbacking::bind {
namespace {

const char* python_class(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUnsupportedPlatform:
      return "UnsupportedPlatformError";
    case ErrorCode::kModel:
      return "ModelError";
    case ErrorCode::kContract:
      return "ContractError";
    case ErrorCode::kAllocation:
      return "AllocationError";
    case ErrorCode::kBackingInUse:
      return "BackingInUseError";
    case ErrorCode::kBackingIgnored:
      return "BackingIgnoredError";
    case ErrorCode::kIntegrity:
      return "IntegrityError";
    case ErrorCode::kPrediction:
      return "PredictionError";
    case ErrorCode::kCertificate:
      return "CertificateError";
    case ErrorCode::kInvalidArgument:
      return nullptr;  // ValueError
  }
  return nullptr;
}

void raise_as_python(const Error& error) {
  const char* name = python_class(error.code());
  if (name == nullptr) {
    PyErr_SetString(PyExc_ValueError, error.what());
    return;
  }
  const nb::module_ errors = nb::module_::import_("kvbacking.errors");
  nb::list failures;
  for (const CheckFailure& failure : error.failures()) {
    failures.append(errors.attr("CheckFailure")(nb::arg("output") = failure.output, nb::arg("check") = failure.check,
                                                nb::arg("expected") = failure.expected,
                                                nb::arg("actual") = failure.actual));
  }
  nb::dict details;
  for (const auto& [key, value] : error.details()) {
    details[key.c_str()] = std::visit([](const auto& v) { return nb::cast(v); }, value);
  }
  const nb::object exception =
      errors.attr(name)(error.message(), nb::arg("failures") = nb::tuple(failures), nb::arg("details") = details);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
}

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    try {
      raise_as_python(error);
    } catch (nb::python_error& python) {  // building the exception failed: say that instead
      python.restore();
    }
  }
}

}  // namespace

void init_errors(nb::module_&) { nb::register_exception_translator(translate); }

}  // namespace kvbacking::bind
