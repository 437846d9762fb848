// A recorded run: the input and the results of every step. `quire replay` computes the steps again.
//
// The file has JSON lines: a RecordingHeader, one line per step, and the number of steps. Only a run that crashed lacks the
// last line. It keeps hashes of the logits, so it shows whether and
// where a replay differs, but not by how much.
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/line_file.h"
#include "engine/step/step.h"
#include "model/decoder.h"

namespace quire {

// What a replay must share with the recorded run. Its kernel set and threads may differ.
struct RecordingHeader {
  std::string model;     // EngineOptions::model
  std::string identity;  // of its weights and numerics
  std::string kernels, activations, kv_cache_dtype;
  int units = 0, states = 0;  // of the KV cache
  DecoderLimits limits;
};

// A step in its own memory.
struct RecordedStep {
  struct Part {
    SequenceId sequence{};
    Span span;  // its views are of `tables` and `state_copies`
    std::vector<std::vector<int32_t>> tables;
    std::vector<StateCopy> state_copies;
  };
  struct Sampled {
    SequenceId sequence{};
    TokenIds tokens;
  };

  std::vector<StateAdvance> advances;
  std::vector<CacheCopy> copies;
  std::vector<Row> rows;
  std::vector<Part> parts;
  std::vector<std::string> logits;  // a hash of each row that wanted them
  std::vector<Sampled> sampled;

  std::vector<Span> spans() const;
};

std::string hash_of(std::span<const float> logits);

class StepRecorder {
 public:
  // Throws Error: the file cannot be written.
  StepRecorder(const std::string& path, const RecordingHeader& header);
  ~StepRecorder();
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;

  // logits: [rows that want them][vocab], before they are sampled.
  void begin(const StepInput& input, std::span<const float> logits);
  // A step that cannot be written ends the recording with a warning.
  void end(const StepInput& input, const StepOutput& output);

 private:
  std::string path_;
  std::ofstream file_;
  std::vector<std::string> logits_;
  int64_t steps_ = 0;
};

class RecordingReader {
 public:
  // Throws Error: the file cannot be read, or is no recording.
  explicit RecordingReader(const std::string& path);
  const RecordingHeader& header() const { return header_; }
  // The next step; nothing at the end. Throws Error that names the line: it is damaged, does not fit the header, or is not
  // the step that should follow.
  std::optional<RecordedStep> next();
  // Whether the recording's end has been read; a run that crashed has none.
  bool is_complete() const { return is_complete_; }

 private:
  std::string path_;
  LineFile file_;
  RecordingHeader header_;
  int64_t steps_ = 0;
  bool is_complete_ = false;
};

}  // namespace quire
