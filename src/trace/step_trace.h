// What a trace keeps of one step, and of the answers since the step before: plain data in memory that does not grow.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trace/trace_format.h"

namespace quire {

// Times are in nanoseconds since the trace began.

struct TracedSpan {
  int64_t began = 0, ended = 0;
};

// One operation of the forward pass.
struct TracedOperation {
  TracedSpan span;
  uint8_t operation = 0;  // index in the names that the writer has
  int16_t layer = -1;     // -1: outside the layers
};

// Something that happened to an answer.
struct TracedAnswer {
  enum class Kind : uint8_t {
    kQueued,      // span: from submission to the first step that computes some of it
    kPrefill,     // span: the step
    kFirstToken,  // at span.ended
    kPreempted,   // at span.ended
    kFinished,    // span: from submission
  };
  Kind kind = Kind::kQueued;
  TracedSpan span;
  uint64_t sequence = 0, request = 0;
  int choice = 0;
  uint64_t step = 0;                          // kPrefill
  int first = 0, rows = 0;                    // kPrefill: position of the first row, and number of rows
  int prompt_tokens = 0, cached_tokens = 0;   // kQueued, kFinished
  int tokens = 0, drafted = 0, accepted = 0;  // kFinished: generated, drafted and verified, right
  int64_t started = -1, first_token = -1;     // kFinished: times; -1: it did not come to that
  std::string_view reason = {};               // kFinished; static
  uint32_t label_at = 0, label_size = 0;      // in StepTrace::labels
};

struct StepTrace {
  uint64_t number = 0;  // 0: no step, only answers
  TracedSpan span;
  std::array<TracedSpan, kStepPhaseNames.size()> phases{};  // those that ended; others are empty
  TracedSpan waited;                                        // for the page store, before this step; empty: not
  int sequences = 0, prompt_rows = 0, decode_rows = 0, drafts = 0, tokens = 0;
  int running = 0, waiting = 0;  // sequences after the step
  std::vector<TracedOperation> operations;
  std::vector<TracedAnswer> answers;
  std::string labels;                              // names that clients gave their requests; any bytes
  uint64_t lost_operations = 0, lost_answers = 0;  // for which there was no room

  // Reserves the memory for so many operations and events of answers.
  void reserve(size_t most_operations, size_t most_answers) {
    operations.reserve(most_operations);
    answers.reserve(most_answers);
    labels.reserve(kLabelBytes);
  }
  static size_t memory_bytes(size_t most_operations, size_t most_answers) {
    return sizeof(StepTrace) + most_operations * sizeof(TracedOperation) + most_answers * sizeof(TracedAnswer) +
           kLabelBytes;
  }
  // The step is forgotten, with its operations; answers stay.
  void clear_step() {
    number = 0;
    span = waited = {};
    phases.fill({});
    sequences = prompt_rows = decode_rows = drafts = tokens = running = waiting = 0;
    operations.clear();
  }
  void clear() {
    clear_step();
    answers.clear();
    labels.clear();
    lost_operations = lost_answers = 0;
  }

  // Both drop what does not fit, and count it.
  void add(const TracedOperation& operation) {
    if (operations.size() == operations.capacity()) {
      ++lost_operations;
    } else {
      operations.push_back(operation);
    }
  }
  void add(TracedAnswer answer, std::string_view label = {}) {
    if (answers.size() == answers.capacity()) {
      ++lost_answers;
      return;
    }
    const size_t size = std::min({label.size(), kLongestLabel, labels.capacity() - labels.size()});
    answer.label_at = static_cast<uint32_t>(labels.size());
    answer.label_size = static_cast<uint32_t>(size);
    labels.append(label.substr(0, size));
    answers.push_back(answer);
  }
  std::string_view label(const TracedAnswer& answer) const {
    return std::string_view(labels).substr(answer.label_at, answer.label_size);
  }

  static constexpr size_t kLabelBytes = size_t{8} << 10, kLongestLabel = 128;
};

}  // namespace quire
