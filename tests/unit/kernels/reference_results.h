// What the reference computes in a test that runs with each kernel set. It is slow, and the same for each set, so the first set's
// run of the test computes it, and the next ones, which GoogleTest runs right after it, find it here.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

namespace quire::testing {

class ReferenceResults {
 public:
  // Of the running test.
  ReferenceResults() {
    const ::testing::TestInfo& running = *::testing::UnitTest::GetInstance()->current_test_info();
    const std::string name = running.name(), test = running.test_suite_name() + ("." + name.substr(0, name.find('/')));
    if (test != test_) results_.clear();
    test_ = test;
  }
  // The next case's, which compute() returns: every set must have the same cases, in the same order.
  template <class Compute>
  const std::vector<float>& next(Compute compute) {
    if (case_ == results_.size()) results_.push_back(compute());
    return results_[case_++];
  }

 private:
  static inline std::string test_;  // of the results
  static inline std::deque<std::vector<float>> results_;
  size_t case_ = 0;
};

}  // namespace quire::testing
