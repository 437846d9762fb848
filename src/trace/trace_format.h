// The names in the files of --trace-out, which the writer and the reader share. docs/tracing.md describes the format.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace quire {

inline constexpr int kTraceVersion = 1;

// The first event and the last one: metadata, which viewers ignore.
inline constexpr std::string_view kTraceHeaderName = "quire_trace", kTraceEndName = "quire_trace_end";

// What made the trace, in its first event.
struct TraceHeader {
  std::string model, kernels, activations;
  int threads = 0;
  int64_t started = 0;      // when its times begin: microseconds since 1970
  bool operations = false;  // it has the operations of each step
};

// Chrome's "processes" and "threads": the engine's track, and a track for each answer, whose thread is its sequence.
inline constexpr int kEngineProcess = 1, kAnswersProcess = 2, kEngineTrack = 1;

// Categories of events.
inline constexpr std::string_view kStepCategory = "step", kPhaseCategory = "phase", kOperationCategory = "op",
                                  kWaitCategory = "wait", kAnswerCategory = "answer";

// The phases of a step, one after the other.
enum class StepPhase : uint8_t {
  kSchedule,  // observing sequences and planning
  kPages,     // giving sequences their pages
  kDraft,     // guessing tokens
  kBuild,     // turning the plan into rows, and what they are sampled with
  kForward,   // the forward pass
  kSample,    // choosing tokens
  kDeliver,   // appending tokens, finding stops, calling clients back
};
inline constexpr std::array<std::string_view, 7> kStepPhaseNames = {"schedule", "pages",  "draft",  "build",
                                                                    "forward",  "sample", "deliver"};

// Events of an answer.
inline constexpr std::string_view kQueuedName = "queued", kPrefillName = "prefill", kFirstTokenName = "first token",
                                  kDecodeName = "decode", kPreemptedName = "preempted", kFinishedName = "finished";

// Why a trace ends.
enum class TraceEnd : uint8_t {
  kMissing,  // it was cut off: the process was killed, or the disk was full
  kClosed,   // the engine stopped
  kLimit,    // the file reached its limit
};
inline constexpr std::array<std::string_view, 3> kTraceEndNames = {"missing", "closed", "limit"};

}  // namespace quire
