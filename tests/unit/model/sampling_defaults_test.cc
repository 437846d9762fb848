#include "model/sampling_defaults.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <string>

#include "../format/gguf_bytes.h"
#include "model/registry.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

class SamplingDefaultsTest : public ::testing::Test {
 protected:
  SamplingDefaultsTest() : folder_(fs::temp_directory_path() / ("quire-sampling-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~SamplingDefaultsTest() override { fs::remove_all(folder_); }

  SamplingRecommendation of_gguf(const std::string& name, const GgufBytes& bytes) {
    write(name, bytes.text());
    return sampling_defaults(Checkpoint::open(folder_ / name));
  }
  SamplingRecommendation of_generation_config(const std::string& json) {
    write("config.json", "{}");
    write("generation_config.json", json);
    // One F32 tensor of one element.
    const std::string header = R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
    const uint64_t size = header.size();
    write("model.safetensors",
          std::string(reinterpret_cast<const char*>(&size), sizeof size) + header + std::string(4, '\0'));
    return sampling_defaults(Checkpoint::open(folder_));
  }

 private:
  void write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }

  fs::path folder_;
};

GgufBytes gguf_of_keys(uint64_t keys, const std::function<void(GgufBytes&)>& add) {
  GgufBytes b(0, keys);
  add(b);
  b.pad();
  return b;
}

TEST_F(SamplingDefaultsTest, AreReadFromGgufMetadata) {
  const SamplingRecommendation found = of_gguf("m.gguf", gguf_of_keys(5, [](GgufBytes& b) {
                                                 b.key("general.sampling.temp", GgufType::F32).number(0.5f);
                                                 b.key("general.sampling.top_k", GgufType::I32).number<int32_t>(20);
                                                 b.key("general.sampling.top_p", GgufType::F32).number(0.75f);
                                                 b.key("general.sampling.min_p", GgufType::F32).number(0.125f);
                                                 b.key("general.sampling.penalty_repeat", GgufType::F32).number(1.25f);
                                               }));
  EXPECT_EQ(found.values.temperature, 0.5f);
  EXPECT_EQ(found.values.top_k, 20);
  EXPECT_EQ(found.values.top_p, 0.75f);
  EXPECT_EQ(found.values.min_p, 0.125f);
  EXPECT_EQ(found.values.repetition_penalty, 1.25f);
  EXPECT_TRUE(found.warnings.empty());
}

TEST_F(SamplingDefaultsTest, IgnoreBadValuesWithAWarning) {
  const SamplingRecommendation found =
      of_gguf("m.gguf", gguf_of_keys(4, [](GgufBytes& b) {
                b.key("general.sampling.temp", GgufType::F32).number(std::numeric_limits<float>::quiet_NaN());
                b.key("general.sampling.top_k", GgufType::STRING).string("many");
                b.key("general.sampling.top_p", GgufType::F32).number(1.5f);
                b.key("general.sampling.min_p", GgufType::F32).number(0.125f);
              }));
  EXPECT_EQ(found.values, (SamplingDefaults{.min_p = 0.125f}));
  ASSERT_EQ(found.warnings.size(), 3u);
  EXPECT_TRUE(found.warnings[2].ends_with("m.gguf: general.sampling.top_p is 1.5, which is out of range; ignored"))
      << found.warnings[2];
}

TEST_F(SamplingDefaultsTest, ComeFromTheRegistryWhereTheFileIsSilent) {
  const RegisteredModel& known = registered_models().front();
  ASSERT_NE(known.sampling, SamplingDefaults{});
  EXPECT_EQ(of_gguf(known.file, gguf_of_keys(0, [](GgufBytes&) {})).values, known.sampling);
  EXPECT_EQ(of_gguf("other.gguf", gguf_of_keys(0, [](GgufBytes&) {})).values, SamplingDefaults{});
  const auto of_file = of_gguf(known.file, gguf_of_keys(1, [](GgufBytes& b) {
                                 b.key("general.sampling.top_k", GgufType::U32).number<uint32_t>(7);
                               }));
  EXPECT_EQ(of_file.values, (SamplingDefaults{.top_k = 7}));
}

TEST_F(SamplingDefaultsTest, AreReadFromGenerationConfigIfItSamples) {
  const std::string values = R"("temperature": 0.5, "top_k": 20, "top_p": 0.75, "repetition_penalty": 1.25)";
  EXPECT_EQ(of_generation_config(R"({"do_sample": true, )" + values + "}").values,
            (SamplingDefaults{.temperature = 0.5f, .top_p = 0.75f, .repetition_penalty = 1.25f, .top_k = 20}));
  EXPECT_EQ(of_generation_config(R"({"do_sample": false, )" + values + "}").values, SamplingDefaults{});
  EXPECT_EQ(of_generation_config("{" + values + "}").values, SamplingDefaults{});
  const SamplingRecommendation bad = of_generation_config(R"({"do_sample": true, "top_k": 1.5, "min_p": -1})");
  EXPECT_EQ(bad.values, SamplingDefaults{});
  EXPECT_EQ(bad.warnings.size(), 2u);
}

}  // namespace
}  // namespace quire
