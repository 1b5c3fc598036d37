// One init function per concept; module.cpp calls them in order.
// Threads: module initialisation only, with the GIL. Ownership: none.
#pragma once

#include <nanobind/nanobind.h>

namespace kvbacking::bind {

void init_errors(nanobind::module_& m);
void init_checks(nanobind::module_& m);
void init_layout(nanobind::module_& m);
void init_allocation(nanobind::module_& m);
void init_copy(nanobind::module_& m);
void init_scan(nanobind::module_& m);
void init_host(nanobind::module_& m);
void init_measure(nanobind::module_& m);
void init_surface(nanobind::module_& m);
void init_model(nanobind::module_& m);
void init_state(nanobind::module_& m);
void init_compute_plan(nanobind::module_& m);
void init_contract(nanobind::module_& m);
void init_evidence(nanobind::module_& m);
void init_session(nanobind::module_& m);

}  // namespace kvbacking::bind
