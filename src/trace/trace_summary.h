// Where the time of a traced run went.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trace/event_text.h"
#include "trace/trace_reader.h"

namespace quire {

// Times of one thing, in seconds. Percentiles by nearest rank: the smallest time that at least this share of all times does
// not exceed.
struct TimeTally {
  size_t count = 0;
  double total = 0, mean = 0, p50 = 0, p99 = 0, most = 0;
};
TimeTally tally(std::vector<float> times);

struct NamedTally {
  std::string name;
  TimeTally times;
};

struct StepKindTally {
  std::string kind;  // prefill, decode or mixed
  TimeTally times;
  int64_t prompt_rows = 0, decode_rows = 0, drafts = 0, tokens = 0;
};

struct SlowStep {
  uint64_t number = 0;
  std::string kind;
  double began = 0, seconds = 0;
  int64_t sequences = 0, prompt_rows = 0, decode_rows = 0, drafts = 0;
  std::vector<std::pair<std::string, double>>
      parts;  // seconds of operations, and of the phases that have none; longest first
};

struct AnswersSummary {
  size_t finished = 0;
  size_t unfinished = 0;  // seen, but the trace ends before they do
  std::map<std::string, size_t> reasons;
  int64_t prompt_tokens = 0, cached_tokens = 0, tokens = 0, drafted = 0, accepted = 0;  // of those that finished
  size_t preemptions = 0;
  TimeTally queue;  // from submission to the first step
  TimeTally ttft;   // from submission to the first token
  TimeTally tpot;   // from the first token to the end, divided by the tokens after the first
  TimeTally total;  // from submission to the end
};

struct TraceSummary {
  TraceHeader header;
  TraceEnd end = TraceEnd::kMissing;
  bool cut_inside_event = false;
  TraceLosses losses;

  size_t steps = 0;
  double seconds = 0;       // from the beginning of the first step to the end of the last
  double step_seconds = 0;  // of them in steps
  double idle_seconds = 0;  // between steps, when no request was there
  double wait_seconds = 0;  // between steps, waiting for the page store
  double gap_seconds = 0;   // the rest between steps: bookkeeping, and lost steps

  std::vector<StepKindTally> kinds;    // those that occur: prefill, mixed, decode
  std::vector<NamedTally> phases;      // in the order of a step
  std::vector<NamedTally> operations;  // most time first
  std::vector<SlowStep> slowest;       // slowest first
  AnswersSummary answers;
};

// Reads the whole trace. Keeps four bytes for each operation and step. Throws Error as TraceReader does, and for events
// that contradict each other.
TraceSummary summarize_trace(const std::string& path, size_t slowest);

}  // namespace quire
