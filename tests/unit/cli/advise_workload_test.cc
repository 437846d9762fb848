// Workloads for advice: built-in ones, files, and what is wrong with them.
#include "cli/advise/workload.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "error_of.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

class WorkloadFolder {
 public:
  WorkloadFolder() : path_(fs::temp_directory_path() / ("quire-workload-" + std::to_string(::getpid()))) {
    fs::create_directory(path_);
  }
  ~WorkloadFolder() { fs::remove_all(path_); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
    return (path_ / name).string();
  }

 private:
  const fs::path path_;
};

AdviceWorkload parse(const std::string& json) {
  const WorkloadFolder folder;
  return read_advice_workload(folder.write("w.json", json));
}

TEST(AdviceWorkload, BuiltInOnesHaveTheLengthsOfTheirKind) {
  for (const std::string_view kind : kAdviceKinds) {
    const AdviceWorkload w = read_advice_workload(std::string(kind));
    EXPECT_EQ(w.name, kind);
    EXPECT_GE(w.requests.size(), static_cast<size_t>(w.concurrency));
    EXPECT_GT(w.requests[0].input_tokens, w.shared_prefix);
  }
  EXPECT_GT(read_advice_workload("rag").shared_prefix, read_advice_workload("chat").longest());
  EXPECT_LT(read_advice_workload("classify").mean_answer(), 10);
}

TEST(AdviceWorkload, AFileChangesWhatItNames) {
  const AdviceWorkload w = parse(R"({"kind": "rag", "requests": 3, "concurrency": 2, "prompt_tokens": 10,
                                     "answer_tokens": 5, "shared_prefix_tokens": 100, "temperature": 0.5})");
  EXPECT_EQ(w.kind, AdviceKind::kRag);
  ASSERT_EQ(w.requests.size(), 3u);
  EXPECT_EQ(w.requests[0].input_tokens, 110);
  EXPECT_EQ(w.requests[0].output_tokens, 5);
  EXPECT_EQ(w.longest(), 115);
  EXPECT_EQ(w.temperature, 0.5f);
  EXPECT_EQ(parse(R"({"requests": 2, "concurrency": 30})").concurrency, 2);
  EXPECT_EQ(parse(R"({"kind": "rag"})").shared_prefix, read_advice_workload("rag").shared_prefix);
}

TEST(AdviceWorkload, ATraceGivesLengthsUpToItsCaps) {
  const WorkloadFolder folder;
  folder.write("t.csv",
               "TIMESTAMP,ContextTokens,GeneratedTokens\n"
               "2023-11-16 18:17:03.9799600,100,20\n2023-11-16 18:17:04.0,5000,900\n2023-11-16 18:17:05.0,7,1\n");
  const AdviceWorkload w = read_advice_workload(
      folder.write("w.json", R"({"trace": "t.csv", "max_prompt_tokens": 300, "max_answer_tokens": 50})"));
  ASSERT_EQ(w.requests.size(), 3u);
  EXPECT_EQ(w.shared_prefix, 0);
  EXPECT_EQ(w.requests[1].input_tokens, 300);
  EXPECT_EQ(w.requests[1].output_tokens, 50);
  EXPECT_EQ(w.requests[2].input_tokens, 7);
  const AdviceWorkload two = read_advice_workload(folder.write("v.json", R"({"trace": "t.csv", "requests": 2})"));
  EXPECT_EQ(two.requests.size(), 2u);
}

TEST(AdviceWorkload, ScalesLengthsButNotToNothing) {
  const AdviceWorkload w = scaled(read_advice_workload("rag"), 0.25);
  EXPECT_EQ(w.shared_prefix, 256);
  EXPECT_EQ(w.requests[0].input_tokens, (1024 + 64) / 4);
  EXPECT_EQ(w.requests[0].output_tokens, 16);
  EXPECT_EQ(w.scale, 0.25);
  const AdviceWorkload least = scaled(read_advice_workload("classify"), 0.001);
  EXPECT_EQ(least.requests[0].input_tokens, 8);
  EXPECT_EQ(least.requests[0].output_tokens, 4);
  EXPECT_EQ(scaled(parse(R"({"answer_tokens": 1})"), 0.1).requests[0].output_tokens, 1);
}

TEST(AdviceWorkload, SaysWhatIsWrong) {
  const std::pair<const char*, const char*> wrong[] = {
      {R"({"requests": 0})", "requests"},
      {R"({"requests": 1e9})", "requests"},
      {R"({"concurrency": -1})", "concurrency"},
      {R"({"prompt_tokens": "many"})", "prompt_tokens"},
      {R"({"answer_token": 5})", "Did you mean answer_tokens?"},
      {R"({"kind": "poetry"})", "must be one of chat, rag, classify, not poetry"},
      {R"({"trace": "no.csv"})", "no.csv"},
      {R"({"trace": "no.csv", "prompt_tokens": 5})", "excludes trace"},
      {R"({"max_prompt_tokens": 5})", "is for traces"},
      {R"({"temperature": -1})", "temperature"},
      {R"({"text": ""})", "must be a file"},
      {R"([1])", "object"},
      {R"({"kind")", "w.json"},
  };
  for (const auto& [json, message] : wrong) {
    const std::string error = error_of([text = std::string(json)] { parse(text); });
    EXPECT_NE(error.find(message), std::string::npos) << json << ": " << error;
  }
  EXPECT_NE(error_of([] { read_advice_workload("/no/such"); }).find("chat, rag, classify"), std::string::npos);
}

}  // namespace
}  // namespace quire
