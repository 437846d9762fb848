// An engine with --pack-cache: the next start maps what the first one has packed.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "engine/loaded_model.h"
#include "leases.h"
#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using testing::answer;
using testing::Answer;
using testing::expect_same;

class PackCache : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_leases()) GTEST_SKIP() << "the file system has no leases";
    folder_ = fs::temp_directory_path() / ("quire-pack-cache-" + std::to_string(getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A copy of a tiny model that the test can change.
  fs::path copy(const fs::path& model) {
    const fs::path path = folder_ / "model.gguf";
    fs::copy_file(model, path, fs::copy_options::overwrite_existing);
    return path;
  }
  EngineOptions options(const fs::path& model, bool cached = true) {
    EngineOptions o = testing::tiny_options();
    o.model = model.string();
    if (cached) o.pack_cache = (folder_ / "packs").string();
    return o;
  }
  bool maps(const fs::path& model) { return LoadedModel(options(model)).target.weights.mapped.has_value(); }
  Answer ask(const EngineOptions& o) {
    Engine engine(o);
    return answer(engine, {.prompt = testing::random_tokens(1, 40),
                           .sampling = {.temperature = 1, .seed = 3, .max_tokens = 12, .logprobs = 1}});
  }
  size_t packs() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_ / "packs"), fs::directory_iterator()));
  }

  fs::path folder_;
};

TEST_F(PackCache, GivesTheSameBits) {
  size_t models = 0;
  for (const TensorType type : {TensorType::Q4_1, TensorType::Q6_K, TensorType::BF16}) {
    const std::string model = testing::tiny_model(type);
    const Answer plain = ask(options(model, false));
    expect_same(plain, ask(options(model)), "packs");
    EXPECT_EQ(packs(), ++models);
    EXPECT_TRUE(maps(model));
    expect_same(plain, ask(options(model)), "maps");
    EXPECT_EQ(packs(), models);
  }
}

TEST_F(PackCache, DoesNotDependOnTheModelsPath) {
  const fs::path path = copy(testing::tiny_model());
  EXPECT_FALSE(maps(path));
  fs::rename(path, folder_ / "other.gguf");
  EXPECT_TRUE(maps(folder_ / "other.gguf"));
}

TEST_F(PackCache, IsNotUsedForAFileThatHasChanged) {
  const fs::path path = copy(testing::tiny_model());
  EXPECT_FALSE(maps(path));
  EXPECT_TRUE(maps(path));
  fs::last_write_time(path, fs::last_write_time(path) - std::chrono::hours(1));
  EXPECT_FALSE(maps(path));
}

TEST_F(PackCache, IsNotUsedForAnotherModelOfEqualSizeAndTime) {
  const fs::path path = copy(testing::tiny_model());
  const auto time = fs::last_write_time(path);
  EXPECT_FALSE(maps(path));
  // As after training: all numbers differ, all headers are equal.
  SynthShape shape{"tiny", 2, 256, 6, 2, 32, 512, 320, 512, 10000, false};
  const auto size = fs::file_size(path);
  write_synthetic_model(path, shape, TensorType::Q4_1, 6);
  ASSERT_EQ(fs::file_size(path), size);
  fs::last_write_time(path, time);
  EXPECT_FALSE(maps(path));
  EXPECT_EQ(packs(), 2u);
}

TEST_F(PackCache, ThatIsDamagedIsMadeAgain) {
  const std::string model = testing::tiny_model();
  const Answer right = ask(options(model));
  const fs::path pack = fs::directory_iterator(folder_ / "packs")->path();
  std::fstream(pack, std::ios::in | std::ios::out | std::ios::binary).seekp(-1, std::ios::end).put('\x55');
  EXPECT_FALSE(maps(model));
  EXPECT_TRUE(maps(model));
  expect_same(right, ask(options(model)));
}

TEST_F(PackCache, ThatCannotBeWrittenIsDoneWithout) {
  std::ofstream(folder_ / "packs") << "a file";
  const std::string model = testing::tiny_model();
  expect_same(ask(options(model, false)), ask(options(model)));
}

TEST_F(PackCache, TakesNoMemoryOfItsOwn) {
  const std::string model = testing::tiny_model();
  EXPECT_GT(LoadedModel(options(model)).target.weights.memory.size(), 0u);
  const LoadedModel mapped(options(model));
  EXPECT_EQ(mapped.target.weights.memory.size(), 0u);
  EXPECT_EQ(mapped.info.weight_bytes, mapped.target.weights.mapped->bytes().size());
}

}  // namespace
}  // namespace quire
