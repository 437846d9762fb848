// Chooses the loops of linears, or a device's kernels, by measuring them with the model at hand, once on each machine.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/runtime.h"
#include "model/packing/load_meter.h"
#include "ops/backend.h"
#include "ops/cpu/compute.h"
#include "ops/cpu/tuning.h"

namespace quire {

// The choices of earlier starts: names of kinds and of their loops. One file for all machines that share a home folder:
//
//   {"version": 1, "machines": {"AMD EPYC, microcode 0xa10113e, avx512bf16, 2 threads, loops 1": {KIND: LOOP, ...}, ...}}
//
// Nothing throws because of the file: a failure is one warning.
class TuningFile {
 public:
  using Warn = std::function<void(const std::string&)>;
  using Choices = std::map<std::string, std::string>;

  TuningFile(std::filesystem::path path, std::string machine, Warn warn);
  Choices read() const;                     // this machine's choices; empty if there are none
  void save(const Choices& choices) const;  // replaces this machine's; appears whole, by rename

 private:
  std::filesystem::path path_;
  std::string machine_;
  Warn warn_;
};

// ~/.cache/quire/tuning.json; empty without a home folder: nothing is measured.
std::filesystem::path default_tuning_file();
// What choices depend on: processor and microcode, kernel set, threads, the loops of this program.
std::string tuning_machine(const Compute& compute);

// The matrices that a model's linears multiply with, in order.
std::vector<TunedMatrix> tuned_matrices(const Model& model, Activations activations);

// The projections that a model makes, in order: matrices that have the same inputs together, and gates with what they gate.
std::vector<TunedProjection> tuned_projections(const Model& model, Activations activations);

// Fills `tuning` from the file. Measures the kinds that the file lacks, or all of them with `force`, and saves them.
void tune(const Compute& compute, Tuning& tuning, const Model& model, const TuningFile& file, bool force,
          const OnLoad& report);
// The same for a backend that chooses between its kernels (Backend::tuned_as()), for steps of up to `rows` rows.
void tune(Backend& backend, const Model& model, Activations activations, int rows, const TuningFile& file, bool force,
          const OnLoad& report);

}  // namespace quire
