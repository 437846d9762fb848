// The module quire._quire: the engine's public interface for the package in python/quire.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <string>
#include <vector>

#include "base/static_program.h"
#include "cli/program.h"
#include "engine_handle.h"
#include "quire/machine.h"
#include "quire/text.h"
#include "read_options.h"

namespace quire::python {
namespace {

const char* class_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalid:
      return "InvalidError";
    case ErrorKind::kUnsupported:
      return "UnsupportedError";
    case ErrorKind::kNotFound:
      return "NotFoundError";
    case ErrorKind::kResource:
      return "ResourceError";
  }
  return "QuireError";
}

// quire::Error becomes the class of quire.errors for its kind.
void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    const nb::object type = nb::module_::import_("quire.errors").attr(class_of(error.kind()));
    PyErr_SetString(type.ptr(), error.what());
  }
}

double pair_score(const nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>& results,
                  const std::string& score) {
  const Score kind = score == "sigmoid" ? Score::kSigmoid : score == "yes_no" ? Score::kYesNo : Score::kRaw;
  if (results.size() < (kind == Score::kYesNo ? 2u : 1u)) throw nb::value_error("a classifier has more results");
  return score_of({results.data(), results.size()}, kind);
}

}  // namespace

NB_MODULE(_quire, module) {
#ifdef QUIRE_ALL_INSIDE
  find_certificates();
#endif
  nb::set_leak_warnings(false);  // a daemon thread may hold an engine when the interpreter ends
  nb::register_exception_translator(translate, nullptr);
  bind_engine(module);
  bind_answers(module);
  module.def("sampling_parameters", sampling_parameters, "(name, default, what it does) of each number and switch.");
  module.def(
      "check_sampling", [](const nb::dict& values) { validate(read_sampling(values), kMaxCount); }, nb::arg("values"),
      "Raises what AnswerQueue.submit would raise for these parameters with a large vocabulary.");
  module.def("pair_score", pair_score, nb::arg("results").noconvert(), nb::arg("score"));
  module.def("available_memory", available_memory, "Bytes that this process may still allocate.");
  module.def(
      "default_tuning_file", [] { return default_tuning_file().string(); },
      "Where the program keeps its measurements of loops.");
  module.def(
      "run_program",
      [](std::vector<std::string> arguments) {
        std::vector<char*> argv;
        for (std::string& argument : arguments) argv.push_back(argument.data());
        argv.push_back(nullptr);
        return run_program(static_cast<int>(arguments.size()), argv.data());
      },
      nb::arg("arguments"), nb::call_guard<nb::gil_scoped_release>(),
      "The exit code of the program with these arguments, of which the first is its name. For processes that do "
      "nothing else.");
  module.attr("version") = QUIRE_VERSION;
}

}  // namespace quire::python
