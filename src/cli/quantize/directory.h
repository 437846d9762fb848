// quire quantize --method: writes a Hugging Face directory whose linears are quantized.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "cli/calibration/calibration.h"
#include "quantize/hf/method.h"

namespace quire {

struct DirectoryFlags {
  std::string method;
  std::optional<int> bits, group;  // group: -1: whole rows
  std::optional<std::string> observer;
  std::optional<double> damping;
  std::optional<float> alpha;
  bool symmetric = false, asymmetric = false, act_order = false, static_groups = false, no_double = false;
  bool rotate = false;  // also without a method
  bool no_online_rotation = false;

  CLI::Option* method_option = nullptr;
};

// Adds --method and its flags, each of which needs it. flags: must outlive the command.
void add_directory_flags(CLI::App& command, DirectoryFlags& flags);

struct DirectoryJob {
  std::string input, output;  // output: empty with dry_run
  CalibrationFlags calibration;
  int threads = 0;
  bool dry_run = false, force = false, resume = false;
  const CLI::App* command = nullptr;  // for --resume: what was given
};
// Throws CLI::ValidationError for flags that the method does not take, and Error.
void quantize_directory(const DirectoryFlags& flags, const DirectoryJob& job);

}  // namespace quire
