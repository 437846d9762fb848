#include "hub/choose_files.h"

#include <gtest/gtest.h>

#include "error_of.h"

namespace quire {
namespace {

constexpr uint64_t kGigabyte = 1'000'000'000;

std::vector<RepoFile> files_of(std::initializer_list<const char*> paths, uint64_t size = 1000) {
  std::vector<RepoFile> files;
  for (const char* path : paths) files.push_back({.path = path, .size = size});
  return files;
}

std::vector<std::string> paths_of(const FileChoice& choice) {
  std::vector<std::string> paths;
  for (const RepoFile& file : choice.files) paths.push_back(file.path);
  return paths;
}

FileChoice choose(const std::vector<RepoFile>& files, const std::string& choice = "", uint64_t memory = 8 * kGigabyte) {
  return choose_files(files, choice, memory, "hf:org/x");
}

TEST(Quantization, IsTheLastOneOfTheName) {
  EXPECT_EQ(quantization_of("SmolLM2-135M-Instruct.Q4_1.gguf"), "Q4_1");
  EXPECT_EQ(quantization_of("qwen2.5-7b-instruct-q4_k_m.gguf"), "Q4_K_M");
  EXPECT_EQ(quantization_of("Qwen3-8B-UD-Q4_K_XL.gguf"), "UD-Q4_K_XL");
  EXPECT_EQ(quantization_of("BF16/x-00001-of-00002.gguf"), "BF16");
  EXPECT_EQ(quantization_of("model_IQ3_XXS.gguf"), "IQ3_XXS");
  EXPECT_EQ(quantization_of("gpt-oss-20b-mxfp4.gguf"), "MXFP4");
  EXPECT_EQ(quantization_of("Q8_0/model-f16.gguf"), "F16");
  for (const char* name : {"model.gguf", "Qwen3-8B.gguf", "f1-score.gguf", "quest-2.gguf", "F4.gguf"})
    EXPECT_EQ(quantization_of(name), "") << name;
}

TEST(ChooseFiles, TakesTheUsualQuantization) {
  const FileChoice choice = choose(files_of({"x-Q8_0.gguf", "x-Q4_K_M.gguf", "mmproj-x-F16.gguf", "imatrix.gguf"}));
  EXPECT_EQ(paths_of(choice), std::vector<std::string>{"x-Q4_K_M.gguf"});
  EXPECT_EQ(choice.main, "x-Q4_K_M.gguf");
  EXPECT_EQ(choice.others, std::vector<std::string>{"Q8_0"});
}

TEST(ChooseFiles, TakesTheLargestThatFitsWhereTheUsualOneDoesNot) {
  const std::vector<RepoFile> files{{"x-Q8_0.gguf", 8 * kGigabyte},
                                    {"x-Q4_K_M.gguf", 5 * kGigabyte},
                                    {"x-Q3_K_M.gguf", 4 * kGigabyte},
                                    {"x-Q2_K.gguf", 3 * kGigabyte}};
  EXPECT_EQ(choose(files, "", 7 * kGigabyte).main, "x-Q4_K_M.gguf");  // 1.3 times 5
  EXPECT_EQ(choose(files, "", 6 * kGigabyte).main, "x-Q3_K_M.gguf");
  EXPECT_EQ(choose(files, "q8_0", 6 * kGigabyte).main, "x-Q8_0.gguf") << "what is named is taken";
  const std::string error = error_of([&] { choose(files, "", kGigabyte); });
  EXPECT_NE(error.find("no file fits the 1.0 GB"), std::string::npos) << error;
}

TEST(ChooseFiles, CountsThePartsOfASplitFileAsOne) {
  const auto files =
      files_of({"x-Q8_0-00002-of-00002.gguf", "x-Q8_0-00001-of-00002.gguf", "y-Q4_0-00001-of-00003.gguf"});
  const FileChoice choice = choose(files);
  EXPECT_EQ(paths_of(choice), (std::vector<std::string>{"x-Q8_0-00001-of-00002.gguf", "x-Q8_0-00002-of-00002.gguf"}));
  EXPECT_EQ(choice.bytes(), 2000u);
  EXPECT_EQ(choose(files, "x-Q8_0-00002-of-00002.gguf").main, "x-Q8_0-00001-of-00002.gguf");
  EXPECT_NE(error_of([&] { choose(files, "q4_0"); }).find("split into 3 files, of which the repository has 1"),
            std::string::npos);
}

TEST(ChooseFiles, AsksWhereANameIsAmbiguous) {
  const auto files = files_of({"a-Q4_K_M.gguf", "b-Q4_K_M.gguf", "b-Q8_0.gguf"});
  EXPECT_NE(error_of([&] { choose(files); }).find("name one of its files: a-Q4_K_M.gguf, b-Q4_K_M.gguf, Q8_0"),
            std::string::npos);
  EXPECT_NE(error_of([&] { choose(files, "q4_k_m"); }).find("2 files have the quantization Q4_K_M"), std::string::npos);
  EXPECT_EQ(choose(files, "b-Q4_K_M.gguf").main, "b-Q4_K_M.gguf");
  EXPECT_NE(error_of([&] { choose(files, "Q8_1"); }).find("Did you mean Q8_0?"), std::string::npos);
}

TEST(ChooseFiles, TakesWhatADirectoryNeeds) {
  const FileChoice choice = choose(
      files_of({"README.md", "model-00001-of-00002.safetensors", "config.json", "model-00002-of-00002.safetensors",
                "model.safetensors.index.json", "pytorch_model.bin", "tokenizer.model", "1_Pooling/config.json",
                "2_Dense/model.safetensors", "onnx/model.safetensors", "onnx/config.json", "consolidated.safetensors",
                "chat_template.jinja"}));
  EXPECT_EQ(paths_of(choice), (std::vector<std::string>{
                                  "config.json", "model.safetensors.index.json", "tokenizer.model",
                                  "1_Pooling/config.json", "chat_template.jinja", "model-00001-of-00002.safetensors",
                                  "model-00002-of-00002.safetensors", "2_Dense/model.safetensors"}));
  EXPECT_EQ(choice.main, "");
}

TEST(ChooseFiles, PrefersGgufUnlessSafetensorsAreNamed) {
  const auto files = files_of({"config.json", "model.safetensors", "model-f16.gguf"});
  EXPECT_EQ(choose(files).main, "model-f16.gguf");
  EXPECT_EQ(choose(files, "safetensors").main, "");
}

TEST(ChooseFiles, SaysWhatIsMissing) {
  EXPECT_NE(error_of([] {
              choose(files_of({"pytorch_model.bin", "config.json"}));
            }).find("pickled Python"),
            std::string::npos);
  EXPECT_NE(error_of([] { choose(files_of({"model.safetensors"})); }).find("a config.json next to"), std::string::npos);
  EXPECT_NE(error_of([] {
              choose(files_of({"model.safetensors", "config.json"}), "Q4_0");
            }).find("no GGUF files"),
            std::string::npos);
  EXPECT_NE(error_of([] { choose({}); }), "");
}

}  // namespace
}  // namespace quire
