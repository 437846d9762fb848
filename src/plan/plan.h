// Will it fit, how fast, how many users, at what price: everything that `quire plan` says, as a value.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/planned_model.h"
#include "plan/serving.h"
#include "plan/step_times.h"

namespace quire {

inline constexpr int kMostPlannedUsers = 1 << 20;

struct PlanRequest {
  int users = 1;                     // 1 to kMostPlannedUsers
  int prompt = 1;                    // tokens of each, at least 1
  int answer = 1;                    // likewise
  int chunk = 512;                   // most tokens of a prompt in a step
  std::optional<double> ttft, tpot;  // seconds that must hold
  double price_per_hour = 0;         // of the machine; 0: not asked for
  double efficiency = 1;             // the part of the machine's rates that is reached; above 0, at most 1

  int context() const { return prompt + answer; }
};

// What the plan must know of the machine.
struct PlannedMachine {
  MachineRates rates;
  double memory = 0;                  // bytes
  int threads = 1;                    // that sample and hold partial results of attention
  std::optional<StepTimes> measured;  // steps of this model on it, where that is known
};

// Seconds of a step: as measured on the machine, else the least by its rates and `efficiency` (PlanRequest).
StepSeconds step_times_on(const PlannedModel& model, const PlannedMachine& machine, double efficiency);

struct PlannedMemory {
  double weights = 0, activations = 0, cache = 0;  // of all users
  double cache_per_token = 0;                      // of each further token: in layers that keep all of them
  double cache_per_sequence = 0;                   // of the whole context
  double available = 0;
  int most_users = 0;  // whose whole context fits, up to kMostPlannedUsers; 0: not even the weights and one

  double total() const { return weights + activations + cache; }
};

// A step, or the steps of a prompt.
struct PlannedStep {
  std::string what;  // decode or prefill
  int sequences = 1;
  int tokens = 1;    // rows, all sequences together
  int position = 0;  // tokens before them
  Work work;
  double least = 0;            // seconds, by the rates and the request's efficiency
  double predicted = 0;        // seconds, by measured steps; 0: none
  bool reads_longest = false;  // reading takes at least as long as multiplying

  double seconds() const { return predicted > 0 ? predicted : least; }
  // Operations (two for a multiply-add) for each byte.
  double intensity() const { return work.bytes > 0 ? 2 * work.total_multiply_adds() / work.bytes : 0; }
};

struct Plan {
  PlannedMemory memory;
  std::vector<PlannedStep> steps;    // decode with 1, 8, 32 and all users, then a prefill
  std::optional<int> compute_bound;  // sequences from which decoding is bound by products, at this context
  ServingTimes serving;              // by measured steps, else the least times
  int users_within = 0;              // of those that fit, how many are served within the bounds
  std::optional<double> price_output, price_prompt;  // of 10^6 tokens of answers, prompts included; of prompts alone
};

// A pure function. Encoders and classifiers have prefills only. Throws Error: the request is longer than the model's context.
Plan make_plan(const PlannedModel& model, const PlannedMachine& machine, const ComputeForm& form,
               const PlanRequest& request);

}  // namespace quire
