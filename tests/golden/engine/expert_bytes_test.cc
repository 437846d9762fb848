// What decoding reads of a mixture of experts, as the metrics count it.

#include <gtest/gtest.h>

#include <future>

#include "paths.h"
#include "quire/engine.h"

namespace quire {
namespace {

// Bytes that a decode step reads on average while so many sequences run together.
double bytes_per_step(Engine& engine, int sequences) {
  const EngineStats before = engine.stats();
  std::vector<std::promise<void>> ended(static_cast<size_t>(sequences));
  for (int i = 0; i < sequences; ++i) {
    Request request;
    request.prompt = {1 + i, 7 * i + 3, 11 * i + 5};
    request.sampling.temperature = 0;
    request.sampling.max_tokens = 32;
    request.sampling.ignore_eos = true;
    engine.submit(request, [&end = ended[static_cast<size_t>(i)]](const Output& out) {
      if (out.finish != FinishReason::kNone) end.set_value();
    });
  }
  for (auto& end : ended) end.get_future().wait();
  const EngineStats after = engine.stats();
  return (after.decode_bytes - before.decode_bytes) / static_cast<double>(after.decode_steps - before.decode_steps);
}

TEST(ExpertBytes, AreThoseOfTheExpertsThatAStepUses) {
  EngineOptions options;
  options.model = (golden_dir() / "models/olmoe").string();
  options.max_num_seqs = 8;
  Engine engine(options);
  const auto alone = static_cast<double>(engine.info().decode_bytes);  // with the experts of one token
  const auto all = static_cast<double>(engine.info().weight_bytes);
  ASSERT_LT(alone, 0.9 * all);
  const double most_cached = static_cast<double>(engine.info().kv_bytes_per_token) * 40;
  const double one = bytes_per_step(engine, 1), eight = bytes_per_step(engine, 8);
  EXPECT_GE(one, alone);
  EXPECT_LE(one, alone + most_cached);
  EXPECT_GT(eight, one + 0.05 * alone) << "more sequences use more experts";
  EXPECT_LE(eight, all + 8 * most_cached);
}

}  // namespace
}  // namespace quire
