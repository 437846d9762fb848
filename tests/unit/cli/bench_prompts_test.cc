#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "cli/bench/prompts.h"
#include "error_of.h"

namespace quire {
namespace {

class BenchPrompts : public ::testing::Test {
 protected:
  ~BenchPrompts() override { std::filesystem::remove(path_); }

  std::filesystem::path write(const std::string& text) const {
    std::ofstream(path_, std::ios::binary) << text;
    return path_;
  }
  // The message without the directory.
  std::string refusal(const std::string& text) const {
    const std::string all = error_of([&] { read_prompts(write(text)); });
    const size_t at = all.find(path_.filename().string());
    return at == all.npos ? all : all.substr(at + path_.filename().string().size());
  }

  std::filesystem::path path_ = std::filesystem::path(::testing::TempDir()) / "bench_prompts_test.jsonl";
};

TEST_F(BenchPrompts, AreFirstTurnsOrPromptsOfALine) {
  const auto prompts = read_prompts(
      write("{\"question_id\": 81, \"turns\": [\"Write a poem.\", \"Shorter.\"]}\r\n\n{\"prompt\": \"caf\\u00e9\"}"));
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(prompts[0].text, "Write a poem.");
  EXPECT_EQ(prompts[0].name, "line 1");
  EXPECT_EQ(prompts[1].text, "caf\u00e9");
  EXPECT_EQ(prompts[1].name, "line 3");
}

TEST_F(BenchPrompts, NameFileLineAndFieldOfWhatIsWrong) {
  const std::string good = "{\"prompt\": \"a\"}\n";
  EXPECT_EQ(refusal(good + "{\"turns\": [5]}\n"), ":2: turns[0]: expected a string, found 5");
  EXPECT_EQ(refusal(good + "{\"turns\": []}\n"), ":2: turns: must not be empty");
  EXPECT_EQ(refusal(good + "{\"turns\": \"a\"}\n"), ":2: turns: expected an array, found \"a\"");
  EXPECT_EQ(refusal(good + "\n{\"prompt\": \"\"}\n"), ":3: prompt: must not be empty");
  EXPECT_EQ(refusal(good + "[1]\n"), ":2: expected an object, found an array");
  EXPECT_EQ(refusal("{\"text\": \"a\"}\n"),
            ":1: has neither \"prompt\" nor \"turns\"; expected {\"prompt\": \"...\"} or {\"turns\": [\"...\", ...]}");
  EXPECT_TRUE(refusal(good + good + "{\"prompt\": }\n").starts_with(":3:12: ")) << refusal(good + "{\"prompt\": }\n");
  EXPECT_TRUE(refusal(good + "{\"prompt\": \"\xff\"}\n").starts_with(":2:")) << "ill-formed UTF-8";
  EXPECT_EQ(refusal("\n \n"), ": the file has no prompts");
  EXPECT_EQ(refusal(""), ": the file has no prompts");
}

TEST_F(BenchPrompts, OfAMissingFileNameIt) {
  const std::string message = error_of([] { read_prompts("/nowhere/prompts.jsonl"); });
  EXPECT_NE(message.find("/nowhere/prompts.jsonl"), std::string::npos) << message;
}

TEST(CopyPrompts, AreTwentyKindsOfWork) {
  const std::vector<BenchPrompt> prompts = copy_prompts();
  EXPECT_EQ(prompts.size(), 20u);
  std::set<std::string> names, texts;
  for (const BenchPrompt& prompt : prompts) {
    names.insert(prompt.name);
    texts.insert(prompt.text);
    EXPECT_GT(prompt.text.size(), 250u) << prompt.name;
    EXPECT_LT(prompt.text.size(), 1000u) << prompt.name;
  }
  EXPECT_EQ(names.size(), 20u);
  EXPECT_EQ(texts.size(), 20u);
}

TEST(MisleadingPrompts, AreTwentyDifferentTextsOfTheSameWords) {
  const std::vector<BenchPrompt> prompts = misleading_prompts();
  EXPECT_EQ(prompts.size(), 20u);
  std::set<std::string> names, texts, words;
  for (const BenchPrompt& prompt : prompts) {
    names.insert(prompt.name);
    texts.insert(prompt.text);
    std::istringstream in(prompt.text);
    for (std::string word; in >> word;) words.insert(word);
  }
  EXPECT_EQ(names.size(), 20u);
  EXPECT_EQ(texts.size(), 20u);
  EXPECT_LT(words.size(), 80u);
}

}  // namespace
}  // namespace quire
