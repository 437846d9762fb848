// An experiment of `quire lab`: a technique against its absence.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/terminal/progress.h"
#include "quire/engine.h"

namespace quire {

struct LabOptions {
  EngineOptions engine;  // the model, and how it computes
  std::string trace;     // file of lengths of requests, as read_trace() takes it; empty: lengths are drawn
  bool quick = false;    // smaller sizes and fewer repetitions
  // Called between repetitions; throws when the user has pressed Ctrl-C.
  std::function<void()> check = [] {};
};

// How a number should relate to the one that theory foretells.
enum class Claim {
  kNone,    // theory says nothing
  kEqual,   // a count, exactly
  kAbout,   // a time or a rate, within a factor
  kAtMost,  // theory gives a bound
  kAtLeast,
};

struct LabNumber {
  std::string what;       // "rows computed without a cache"
  std::string unit = {};  // "tokens"; may be empty
  double value = 0;
  bool counted = true;  // the same in every run; false: measured, medians of several runs
  Claim claim = Claim::kNone;
  double foretold = 0;      // if there is a claim
  double factor = 1;        // of kAbout: how far it may be from `foretold`, up or down; of bounds: how far beyond
  std::string theory = {};  // where `foretold` comes from: "n (n + 1) / 2"
};
// Whether the claim holds; nullopt without a claim.
std::optional<bool> holds(const LabNumber& number);

struct LabFigure {
  std::string caption, svg;
};

struct LabResult {
  std::string summary;                // one sentence, computed from the numbers
  std::vector<std::string> setup;     // sentences on what was run: shapes, lengths, repetitions
  std::vector<std::string> commands;  // to try it by hand
  std::vector<LabNumber> numbers;
  std::vector<LabFigure> figures;  // at least one
};

struct Experiment {
  std::string_view name;  // on the command line, and of its files
  std::string_view title, question;
  std::string_view technique;  // what it is, in three sentences
  std::string_view page;       // of docs/, without .md, that explains it
  // Runs it. Throws Error: the model cannot be loaded, memory is short, a file is bad.
  LabResult (*run)(const LabOptions& options, Progress& progress);
};

// In the order of the index. Each is defined in the file of its name; a new one also needs a place in experiment.cc.
extern const Experiment kKvCacheExperiment, kBatchingExperiment, kPagingExperiment, kChunkedPrefillExperiment,
    kPrefixCacheExperiment, kKvHeadsExperiment, kWindowExperiment, kQuantizationExperiment, kSpeculationExperiment,
    kTiledAttentionExperiment;
std::span<const Experiment* const> experiments();

// The longest context that the model's files allow. Reads headers only. Throws Error if they cannot be loaded.
int context_of(const EngineOptions& options);

// Text as an argument of a shell, quoted if it needs to be.
std::string shell_word(std::string_view text);
// "2.7 times", "14 times": a ratio for people.
std::string times_text(double ratio);
// "1,234", "0.0123", "3.46": whole numbers in full with separators, others with three digits.
std::string lab_number_text(double value);

}  // namespace quire
