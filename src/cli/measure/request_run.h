// Runs requests on an engine of this process, and times their answers token by token.
#pragma once

#include <string>
#include <vector>

#include "load/report.h"
#include "quire/engine.h"

namespace quire {

struct ScheduledRequest {
  Request request;  // one choice (sampling.n is 1)
  double at = 0;    // seconds after the start of the run; open loop only
};

struct RunLoop {
  // > 0: closed loop: so many requests run at once, and the next one is submitted when one has ended. 0: open loop: each
  // is submitted at its time, whatever the others do.
  int concurrency = 0;
  // Seconds after which requests that still run are cancelled and no more are submitted; 0: all run to their end.
  double longest = 0;
};

// Times are in seconds. Those of tokens count from the start of the run, to when the engine handed them over; tokens of one
// step have the same time.
struct TimedAnswer {
  double due = 0;  // when it was to be submitted: ScheduledRequest::at; in a closed loop, when its turn came
  double submitted = 0, ended = 0;
  std::vector<double> token_times;            // ascending
  TokenIds tokens;                            // as many; with the end-of-sequence token
  FinishReason finish = FinishReason::kNone;  // kNone: never submitted
  std::string error;                          // with kError, kRefused and kDeadEnd
  Usage usage;                                // queue_seconds, cached_tokens, …

  // It ended by itself.
  bool completed() const { return finish == FinishReason::kStop || finish == FinishReason::kLength; }
};

struct TimedRun {
  std::vector<TimedAnswer> answers;  // in the order of the requests
  double seconds = 0;                // from the start to the end of the last answer
};

// Blocks until all requests have ended. `requests`: in the order of their times. Throws Error: a request can never run; the
// others are cancelled. An answer that ends with an error is not thrown: see TimedAnswer::error.
TimedRun run_requests(Engine& engine, const std::vector<ScheduledRequest>& requests, const RunLoop& loop);

// What all answers took together. Spreads in seconds, of the answers that completed.
struct RunFigures {
  int requests = 0, completed = 0, failed = 0;   // the rest was cut off by RunLoop::longest
  int64_t prompt_tokens = 0, output_tokens = 0;  // of all answers, cut off or not
  int64_t cached_tokens = 0;                     // of the prompts of completed answers
  double seconds = 0;
  Spread queue;  // from submit to the first step that computed some of it
  Spread ttft;   // from when it was due to the first token
  Spread tpot;   // of each answer: first to last token, divided by the tokens between
  Spread itl;    // gaps between tokens, of all answers
  Spread e2e;    // from when it was due to the last token
  int good = 0;  // completed within the service level

  double output_rate() const { return seconds > 0 ? static_cast<double>(output_tokens) / seconds : 0; }
  double request_rate() const { return seconds > 0 ? completed / seconds : 0; }
};
RunFigures figures_of(const TimedRun& run, const ServiceLevel& level = {});

}  // namespace quire
