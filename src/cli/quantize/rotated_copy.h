// quire quantize --rotate: the model with rotated hidden states, from which a run quantizes.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/team.h"
#include "cli/terminal/progress.h"
#include "format/partial_output.h"
#include "model/checkpoint.h"

namespace quire {

// A directory next to the output, as large as the model, that goes with the object.
class RotatedCopy {
 public:
  // partial: may be null; its folder then takes the directory. check: may throw to stop. Throws Error as
  // open_model_source() and write_rotated_model() do.
  RotatedCopy(const Checkpoint& from, const std::string& output, const PartialOutput* partial, Team& team,
              Progress& progress, const std::function<void()>& check);
  ~RotatedCopy();
  RotatedCopy(const RotatedCopy&) = delete;
  RotatedCopy& operator=(const RotatedCopy&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const Checkpoint& checkpoint() const { return *checkpoint_; }
  // What the user should know of the model's files.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  std::filesystem::path path_;
  std::optional<Checkpoint> checkpoint_;
  std::vector<std::string> warnings_;
};

}  // namespace quire
