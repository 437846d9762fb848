#include "cli/quantize/resume.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/files/checksum.h"
#include "base/files/mapped_file.h"
#include "base/program_file.h"
#include "engine/dtype_names.h"
#include "engine/runtime.h"
#include "model/families.h"
#include "ops/cpu/cpu_backend.h"

namespace quire {
namespace {

// Arguments that do not change the output's bytes.
constexpr std::string_view kWithoutEffect[] = {"IN",       "OUT",      "--threads",  "--force",
                                               "--resume", "--report", "--plan-out", "--help"};
// What matters of these is in the file.
constexpr std::string_view kFiles[] = {"--calibrate", "--imatrix", "--plan"};

bool is_in(std::span<const std::string_view> names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

std::string content_of(const std::filesystem::path& file) {
  return fmt::format("{:016x}", checksum(MappedFile(file).bytes()));
}

Json order_of(const CLI::App& command, const Checkpoint& checkpoint) {
  Json order = Json::object();
  // The program itself, not its version: bits of two builds may differ.
  order["the program"] = fmt::format("{} {}", QUIRE_VERSION, content_of(program_file()));
  order["the model"] = model_fingerprint(checkpoint);
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || is_in(kWithoutEffect, name)) continue;
    if (is_in(kFiles, name)) {
      order["the content of " + name] = content_of(option->as<std::string>());
    } else {
      order[name] = fmt::format("{}", fmt::join(option->results(), " "));
    }
  }
  return order;
}

std::filesystem::path without_slash(std::filesystem::path path) {
  return path.has_filename() ? path : path.parent_path();
}

}  // namespace

std::string model_fingerprint(const Checkpoint& checkpoint) {
  // Calibration depends on the form of activations that the machine prefers.
  const std::string_view activations = name(CpuBackend::default_activations_of("auto"));
  const std::string text = model_identity(checkpoint, read_model_config(checkpoint), activations);
  return fmt::format("{:016x}", checksum(std::as_bytes(std::span(text))));
}

std::unique_ptr<PartialOutput> open_partial(const CLI::App& command, const Checkpoint& checkpoint,
                                            const std::string& output, bool force) {
  auto partial = std::make_unique<PartialOutput>(without_slash(output), order_of(command, checkpoint), force);
  if (!partial->warning().empty()) std::fprintf(stderr, "quire: warning: %s\n", partial->warning().c_str());
  if (!partial->is_empty()) std::fprintf(stderr, "continuing %s\n", partial->folder().c_str());
  return partial;
}

void keep_on_failure(std::unique_ptr<PartialOutput>& partial, const std::function<void()>& task) {
  try {
    task();
  } catch (...) {
    if (partial && partial->is_empty()) partial.reset();
    if (partial)
      std::fprintf(stderr, "what is finished is kept in %s; the same command continues it\n",
                   partial->folder().c_str());
    throw;
  }
}

}  // namespace quire
