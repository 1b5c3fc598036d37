#include "bind/bind.h"

namespace nb = nanobind;
namespace bind = kvbacking::bind;

NB_MODULE(_native, m) {
  m.doc() = "Native core of kvbacking. Private: use the package's own names.";
  bind::init_errors(m);
  bind::init_checks(m);
  bind::init_layout(m);
  bind::init_allocation(m);
  bind::init_copy(m);
  bind::init_scan(m);
  bind::init_host(m);
  bind::init_measure(m);
  bind::init_surface(m);
  bind::init_model(m);
  bind::init_state(m);
  bind::init_compute_plan(m);
  bind::init_contract(m);
  bind::init_evidence(m);
  bind::init_session(m);
}
