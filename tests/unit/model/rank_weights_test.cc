// What one of several ranks loads of a model's matrices.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "model/families.h"
#include "model/tensors.h"
#include "model/weights.h"
#include "ops/cpu/cpu_backend.h"
#include "paths.h"

namespace quire {
namespace {

// The panels that operations read have the bytes of the whole matrix, at the address where they are in the whole; tables are whole,
// and the ranks together have little more than one copy of all else.
TEST(RankWeights, HaveThePanelsThatTheRankReads) {
  Team team(2);
  CpuBackend backend("auto", team);
  for (const char* family : {"mistral", "olmoe", "deepseek_v3", "qwen3_next", "gpt2"}) {
    const Checkpoint checkpoint = Checkpoint::open(golden_dir() / "models" / family);
    const ModelConfig config = read_model_config(checkpoint);
    const WeightOptions options{.memory = size_t{1} << 30};
    const Weights whole = load_weights(checkpoint, config, backend, team, options);
    std::vector<const PackedMatrix*> all;
    for_each_matrix(config, whole, [&](const Slot&, const Linear& w) { all.push_back(&w.weight); });
    for (const int ranks : {2, 3}) {
      size_t largest = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        SCOPED_TRACE(std::string(family) + ", rank " + std::to_string(rank) + " of " + std::to_string(ranks));
        WeightOptions part = options;
        part.part.rank = {rank, ranks};
        const Weights own = load_weights(checkpoint, config, backend, team, part);
        EXPECT_EQ(own.memory.size(), own.matrix_bytes);
        EXPECT_LT(own.matrix_bytes, whole.matrix_bytes);
        largest = std::max(largest, own.matrix_bytes);
        size_t i = 0;
        for_each_matrix(config, own, [&](const Slot& slot, const Linear& w) {
          const PackedMatrix& expected = *all[i++];
          ASSERT_EQ(w.weight.rows, expected.rows);
          const bool of_head = slot.tensor == Tensor::kKeyOfHead || slot.tensor == Tensor::kValueOfHead;
          const Share heads = share_of(slot.items, rank, ranks);
          if (of_head && (slot.item < heads.begin || slot.item >= heads.end)) return;
          Share read{0, expected.panels()};
          if (!of_head && !is_table(slot.tensor)) read = panel_share({rank, ranks}, expected.rows, 0).panels;
          for (int p = read.begin; p < read.end; ++p)
            ASSERT_EQ(std::memcmp(w.weight.panel(p), expected.panel(p), expected.layout.bytes), 0) << i << " " << p;
        });
      }
      EXPECT_EQ(largest_rank_bytes(checkpoint, config, ranks), largest) << family << ranks;
    }
  }
}

}  // namespace
}  // namespace quire
