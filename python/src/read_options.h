// Plain values of the engine from Python's dicts.
#pragma once

#include <nanobind/nanobind.h>

#include "quire/constraint.h"
#include "quire/engine.h"

namespace quire::python {

// The names are those of the members; an enumeration is the lower-case name of its value. Raise TypeError for an unknown
// name or a value of another type, ValueError for a number that does not fit its member. Ranges are the engine's to check.
EngineOptions read_engine_options(const nanobind::dict& values);
SamplingParams read_sampling(const nanobind::dict& values);

// {"kind": "json_schema", "text": …} or {"kind": "choice", "choices": […]}; kinds: json_schema, json_object, regex, choice,
// grammar. "label": what errors call it.
ConstraintSource read_constraint(const nanobind::dict& values);

// For each row of kSamplingParameters: (name, default, what it does).
nanobind::list sampling_parameters();

}  // namespace quire::python
