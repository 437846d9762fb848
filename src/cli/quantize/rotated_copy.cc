#include "cli/quantize/rotated_copy.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "quantize/hf/source.h"
#include "quantize/rotate/rotation.h"

namespace quire {
namespace {

std::filesystem::path place_of(std::filesystem::path output, const PartialOutput* partial) {
  if (partial) return partial->rotated();
  if (!output.has_filename()) output = output.parent_path();
  return fmt::format("{}.rotated-{}", output.string(), ::getpid());
}

}  // namespace

RotatedCopy::RotatedCopy(const Checkpoint& from, const std::string& output, const PartialOutput* partial, Team& team,
                         Progress& progress, const std::function<void()>& check)
    : path_(place_of(output, partial)) {
  const ModelSource source = open_model_source(from);
  warnings_ = source.warnings;
  const auto is_unknown = [](const SourceTensor& tensor) { return tensor.uses.empty() && tensor.is_matrix(); };
  if (const auto other = std::ranges::find_if(source.tensors, is_unknown); other != source.tensors.end())
    warnings_.push_back(fmt::format(
        "{} matrices, such as {}, are not part of the text model and are not rotated; whatever reads or adds "
        "hidden states by them, such as an encoder of images, no longer fits",
        std::ranges::count_if(source.tensors, is_unknown), other->name));
  // Of a run that was killed. It is made again: that takes less time than to make sure that it is whole.
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
  progress.stage("rotating tensors");
  write_rotated_model(source, path_, team, [&](size_t written, size_t total, const std::string& name) {
    check();
    progress.step(written, total, name);
  });
  checkpoint_ = Checkpoint::open(path_);
}

RotatedCopy::~RotatedCopy() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace quire
