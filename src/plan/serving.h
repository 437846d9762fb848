// Time and capacity at a load, from what steps cost: pure functions of numbers.
#pragma once

#include <functional>
#include <optional>

#include "plan/work.h"

namespace quire {

// Seconds of a step: the least by data sheets or probes, or what steps were measured to take.
using StepSeconds = std::function<double(const StepLoad&)>;

// Users who always have one request running: each computes a prompt, then an answer, and begins again.
struct ServingLoad {
  int users = 1;    // at least 1
  int prompt = 1;   // tokens, at least 1
  int answer = 1;   // tokens, at least 1
  int chunk = 512;  // most rows of a prompt in a step
};

struct ServingTimes {
  double decode_step = 0;      // seconds of a step in which all users decode
  double ttft = 0;             // seconds from a request's arrival to its first token
  double tpot = 0;             // mean seconds between tokens of an answer; 0: answers have one token
  double output_rate = 0;      // tokens of answers per second, all users together
  double prompt_rate = 0;      // likewise of prompts
  bool prefill_bound = false;  // prompts arrive faster than they are computed, and wait for each other
};

// The steady state with continuous batching and chunked prefill, one prompt at a time (engine/scheduler.h): a step has a
// token of each answer, and a chunk of a prompt. Requests are spread evenly over time, so a new one waits for half a step;
// bursts wait longer. If prompts take longer than answers, they wait in a queue, and ttft is what Little's law leaves:
// users = (ttft + (answer - 1) * tpot) * requests per second.
ServingTimes serving_times(const ServingLoad& load, const StepSeconds& seconds);

// The most users within these bounds on seconds, at most `most`; 0: not even one. An absent bound is none.
int most_users(ServingLoad load, int most, std::optional<double> ttft, std::optional<double> tpot,
               const StepSeconds& seconds);

// The smallest number of sequences with which a decode step at this context takes at least as long to multiply as to
// read. None below 2^20: reading each sequence's own cache outweighs its products, or `rates` lack a unit.
std::optional<int> compute_bound_batch(const ModelWork& model, const MachineRates& rates, int context);

// The price of 10^6 tokens at this many per second, in the currency of the price per hour.
double price_per_million(double price_per_hour, double tokens_per_second);

}  // namespace quire
