// Every small golden model becomes Q8_0 and loads, or is refused because GGUF files cannot hold it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/checkpoint.h"
#include "paths.h"
#include "quantize/quantize.h"
#include "unit/model/bare_model.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> small_models() {
  std::vector<fs::path> found;
  for (const char* kind : {"models", "models-gguf"}) {
    for (const fs::path& folder : golden_folders(kind)) {
      for (const auto& entry : fs::directory_iterator(folder)) {
        if (entry.path().extension() == ".gguf" || fs::exists(entry.path() / "config.json"))
          found.push_back(entry.path());
      }
    }
  }
  std::ranges::sort(found);
  return found;
}

TEST(SmallModels, BecomeQ8OrAreRefused) {
  const fs::path to = fs::temp_directory_path() / ("quire-small-" + std::to_string(::getpid()) + ".gguf");
  Team team(2);
  const QuantizeOptions options{.mix = &find_mix("Q8_0"), .name = "small"};
  int quantized = 0;
  for (const fs::path& from : small_models()) {
    SCOPED_TRACE(from.string());
    const Checkpoint checkpoint = Checkpoint::open(from);
    std::optional<QuantizePlan> plan;
    try {
      plan = plan_quantization(checkpoint, options);
      write_quantized(checkpoint, *plan, options, to, team, [](size_t, size_t) {});
    } catch (const Error& error) {
      // Only directories can have what GGUF files have no word for.
      EXPECT_TRUE(checkpoint.hf()) << error.what();
      EXPECT_EQ(error.kind(), ErrorKind::kUnsupported) << error.what();
      EXPECT_NE(std::string(error.what()).find("cannot be written as GGUF"), std::string::npos) << error.what();
      EXPECT_FALSE(fs::exists(to.string() + ".tmp"));
      continue;
    }
    ++quantized;
    const testing::BareModel loaded(to);
    EXPECT_EQ(loaded.config.layers.size(), plan->file.config.layers.size());
    EXPECT_TRUE(std::ranges::any_of(loaded.checkpoint.tensors(),
                                    [](const TensorView& tensor) { return tensor.type == TensorType::Q8_0; }));
  }
  fs::remove(to);
  EXPECT_GE(quantized, 35);
}

}  // namespace
}  // namespace quire
