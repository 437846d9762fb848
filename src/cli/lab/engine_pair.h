// Two engines with a technique switched on and off, which take turns.
#pragma once

#include <concepts>
#include <memory>

#include "cli/lab/experiment.h"

namespace quire {

class EnginePair {
 public:
  // Loads the model twice, with the threads of one engine. Throws Error as Engine does.
  EnginePair(const EngineOptions& on, const EngineOptions& off, Progress& progress);

  Engine& on() { return on_; }

  // Runs body(engine, whether it is on()) so many times for each. Which comes first changes, so that a machine whose speed
  // drifts slows both alike.
  template <std::invocable<Engine&, bool> Body>
  void alternate(const LabOptions& o, int repetitions, Progress& progress, const Body& body) {
    progress.stage("measuring");
    for (int i = 0; i < repetitions; ++i) {
      progress.step(static_cast<size_t>(i), static_cast<size_t>(repetitions));
      for (const bool is_on : {i % 2 == 0, i % 2 != 0}) {
        o.check();
        body(is_on ? on_ : off_, is_on);
      }
    }
  }

 private:
  std::shared_ptr<Runtime> runtime_;
  Engine on_, off_;
};

}  // namespace quire
