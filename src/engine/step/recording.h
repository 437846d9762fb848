// A recorded run: the order and the results of every step. `quire replay` computes the steps again.
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
#include <vector>

#include "base/files/line_file.h"
#include "engine/step/executor.h"
#include "engine/step/wire.h"
#include "model/decoder.h"

namespace quire {

// What a replay must share with the recorded run. Its kernel set and threads may differ.
struct RecordingHeader {
  std::string model;     // EngineOptions::model
  std::string identity;  // hash of its weights and numerics
  std::string kernels, activations, kv_cache_dtype;
  int units = 0, states = 0;  // size of the KV cache
  DecoderLimits limits;
};

struct RecordedSample {
  SequenceId sequence{};
  TokenIds tokens;
};

struct RecordedStep {
  ReceivedForward forward;
  std::vector<std::string> logits;  // a hash of each row that wanted them
  std::vector<RecordedSample> sampled;
};

std::string hash_of(std::span<const float> logits);

// Writes down what the engine asks of another executor. Passes of drafters are left out, but not the changes of the cache
// that came with them.
class RecordingExecutor final : public Executor {
 public:
  // The executor must outlive this. Throws Error: the file cannot be written.
  RecordingExecutor(Executor& executor, const std::string& path, const RecordingHeader& header);
  ~RecordingExecutor() override;
  RecordingExecutor(const RecordingExecutor&) = delete;
  RecordingExecutor& operator=(const RecordingExecutor&) = delete;

  void launch(const ForwardInput& input) override;
  const ForwardOutput& wait() override;
  bool computes_apart() const override { return executor_.computes_apart(); }
  bool copies_meanwhile() const override { return executor_.copies_meanwhile(); }
  void commit(const CacheChanges& changes) override;
  void read(const CachePlace& place, std::span<std::byte> to) override { executor_.read(place, to); }
  void write(const CachePlace& place, std::span<const std::byte> bytes) override { executor_.write(place, bytes); }

  // The target's last pass was sampled. A step that cannot be written ends the recording with a warning.
  void end(std::span<const RecordedSample> sampled);

 private:
  void keep(const CacheChanges& changes);

  Executor& executor_;
  std::string path_;
  std::ofstream file_;
  const ForwardInput* launched_ = nullptr;
  CacheChanges changes_;             // since the last step
  Json step_;                        // the last pass as JSON; end() adds what was sampled
  std::vector<std::string> logits_;  // hashes, of the logits before they are sampled
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
