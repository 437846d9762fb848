// Recorded runs replay to the same logits; damaged recordings are refused.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/step/replay.h"
#include "kernels/kernels.h"
#include "model/registry.h"
#include "unit/engine/golden_kinds.h"
#include "unit/engine/seeded_request.h"
#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using testing::answers_together;
using testing::random_tokens;

constexpr int kMostTokens = 128;

class Recordings : public ::testing::Test {
 protected:
  Recordings() : path_(fs::temp_directory_path() / ("quire-recording-" + std::to_string(::getpid()) + ".jsonl")) {}
  ~Recordings() override { fs::remove(path_); }

  EngineOptions options(const std::string& kind) const {
    EngineOptions o;
    testing::ignore_time(o);
    o.model = testing::golden_kind(kind);
    o.threads = 2;
    o.max_num_seqs = 4;
    o.max_model_len = kMostTokens;
    o.record = path_.string();
    return o;
  }
  // Shared prefixes, forks, log-probabilities of prompts, drafts, and more sequences than run together.
  void record(EngineOptions o) {
    o.speculative = Speculation::kNgram;
    o.speculate_always = true;
    std::vector<Request> requests;
    for (unsigned i = 0; i < 8; ++i) {
      TokenIds prompt = random_tokens(i % 3, 20 + 5 * static_cast<int>(i));
      Request r = seeded_request(std::move(prompt), i % 2 == 0 ? 40 : 9);
      r.sampling.temperature = i % 2 == 0 ? 0.0f : 0.8f;
      r.sampling.n = i == 4 ? 3 : 1;
      if (i == 5) r.sampling.prompt_logprobs = 0;
      requests.push_back(std::move(r));
    }
    Engine engine(o);
    answers_together(engine, requests);
    stats_ = engine.stats();
  }
  std::vector<std::string> lines() const {
    std::ifstream file(path_);
    std::vector<std::string> all;
    for (std::string line; std::getline(file, line);) all.push_back(line);
    return all;
  }
  void write(const std::vector<std::string>& lines) const {
    std::ofstream file(path_);
    for (const std::string& line : lines) file << line << '\n';
  }

  struct Result {
    int steps = 0, advances = 0, differences = 0;
    uint64_t logits = 0;
  };
  Result replay(const std::string& kind, const std::string& kernels = "auto", int threads = 2) const {
    EngineOptions o;
    o.kernels = kernels;
    o.threads = threads;
    Runtime runtime(o);
    const Checkpoint checkpoint = Checkpoint::open(testing::golden_kind(kind));
    Model model = read_model(checkpoint);
    model.weights =
        load_weights(checkpoint, model.config, runtime.backend(), runtime.team, {.memory = runtime.memory.left()});
    RecordingReader reader(path_.string());
    EXPECT_EQ(reader.header().identity, model_identity(checkpoint, model.config, reader.header().activations));
    Replay replay(reader.header(), model, runtime);
    Result result;
    while (const auto step = reader.next()) {
      ++result.steps;
      result.advances += static_cast<int>(step->forward.input.changes.advances.size());
      if (replay.run(*step)) ++result.differences;
    }
    result.logits = replay.logits();
    return result;
  }
  std::string error(const std::string& kind = "mistral") const {
    try {
      replay(kind);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }

  const fs::path path_;
  EngineStats stats_;  // those of the recorded run
};

class RecordedKinds : public Recordings, public ::testing::WithParamInterface<const char*> {};

TEST_P(RecordedKinds, ReplayToTheSameLogits) {
  record(options(GetParam()));
  EXPECT_GT(stats_.drafted_tokens, 0u);
  EXPECT_GT(stats_.prefix_hit_tokens, 0u);
  const Result usual = replay(GetParam());
  EXPECT_GT(usual.steps, 20);
  EXPECT_GT(usual.logits, 200u);
  EXPECT_EQ(usual.differences, 0);
  const bool recurrent = std::string(GetParam()) == "qwen3_next" || std::string(GetParam()) == "granitemoehybrid";
  EXPECT_EQ(usual.advances > 0, recurrent);
  EXPECT_EQ(replay(GetParam(), "auto", 1).differences, 0);
  EXPECT_EQ(replay(GetParam(), std::string(available_kernels().front()->name)).differences, 0);
}

// With windows, recurrent layers, latent attention, and the plain kind.
INSTANTIATE_TEST_SUITE_P(All, RecordedKinds,
                         ::testing::Values("mistral", "gemma3_text", "deepseek_v3", "qwen3_next", "granitemoehybrid"));

TEST_F(Recordings, CoverEveryCacheType) {
  for (const char* kv : {"int8", "int4", "fp8"}) {
    EngineOptions o = options("mistral");
    o.kv_cache_dtype = kv;
    record(o);
    EXPECT_EQ(replay("mistral").differences, 0) << kv;
    EXPECT_EQ(replay("mistral", std::string(available_kernels().front()->name), 1).differences, 0) << kv;
  }
}

TEST_F(Recordings, CoverPreemptions) {
  EngineOptions o = options("mistral");
  const CacheLayout layout =
      cache_layout(read_model_config(Checkpoint::open(testing::golden_kind("mistral"))), KvType::kBf16);
  o.kv_cache_bytes = layout.sequence_units(kMostTokens) * layout.unit_bytes();
  record(o);
  EXPECT_GT(stats_.preemptions, 0u);
  EXPECT_EQ(replay("mistral").differences, 0);
}

TEST_F(Recordings, ShowWhereAReplayDiffers) {
  record(options("mistral"));
  auto all = lines();
  std::string& line = all.at(5);
  char& digit = line.at(line.find("\"logits\":[\"") + 11);
  digit = digit == '0' ? '1' : '0';
  write(all);
  EXPECT_EQ(replay("mistral").differences, 1);
}

TEST_F(Recordings, AreRefusedWhereTheyAreDamaged) {
  record(options("mistral"));
  const auto all = lines();
  const struct {
    size_t line;
    const char *from, *to, *message;
  } kCases[] = {
      {0, "\"quire_recording\":3", "\"quire_recording\":1", "version 1"},
      {0, "quire_recording", "recording", "not a recording"},
      {0, "\"units\":", "\"units\":-", "units"},
      {0, "\"kv_cache_dtype\":\"bf16\"", "\"kv_cache_dtype\":\"int3\"", "int3"},
      {1, "{\"advances\"", "{\"advances", ":2:"},
      {1, "\"tokens\":[", "\"tokens\":[1,", "cover"},
      {1, "\"tokens\":[", "\"tokens\":[-5,", "cover"},
      {1, "\"position\":0", "\"position\":4000", "max_positions"},
      {1, "\"tables\":[[", "\"tables\":[[-1,", "unit"},
      {1, "\"tables\":[[", "\"tables\":[[100000000,", "unit"},
      {1, "\"tables\":[[", "\"tables\":[[],[", "group"},
      {1, "\"state\":-1", "\"state\":3", "state"},
      {1, "\"advances\":[]", "\"advances\":[[0,0,1]]", "advances"},
      {1, "\"drafts\":0", "\"drafts\":4000", "drafts"},
      {1, "\"copies\":[]", "\"copies\":[[\"unit\",0,100000000]]", "copies"},
      {1, "\"copies\":[]", "\"copies\":[[\"state\",0,1]]", "copies"},
      {1, "\"logits\":[", "\"logits\":[\"\",", "hashes"},
      {1, "\"rope_variant\":0", "\"rope_variant\":1000", "rope_variant"},
      {1, "\"wants_logits\":[", "\"wants_logits\":[100000,", "wants_logits"},
  };
  for (const auto& c : kCases) {
    auto damaged = all;
    const size_t at = damaged[c.line].find(c.from);
    ASSERT_NE(at, std::string::npos) << c.from;
    damaged[c.line].replace(at, std::string(c.from).size(), c.to);
    write(damaged);
    EXPECT_NE(error().find(c.message), std::string::npos) << c.to << ": " << error();
  }
  write({});
  EXPECT_NE(error().find("cannot read"), std::string::npos) << error();
}

TEST_F(Recordings, AreRefusedIfLinesWereAddedOrTakenAway) {
  record(options("mistral"));
  const auto all = lines();
  const auto error_of = [&](const auto& change) {
    auto changed = all;
    change(changed);
    write(changed);
    return error();
  };
  const std::string& last_step = all[all.size() - 2];
  const std::string tail = "follows the end of the recording", order = "expected step";
  for (const std::string& line : {last_step, all.back(), all.front(), std::string("{}")})
    EXPECT_NE(error_of([&](auto& l) { l.push_back(line); }).find(tail), std::string::npos) << line;
  EXPECT_NE(error_of([&](auto& l) { l.push_back(""); }), "");
  EXPECT_NE(error_of([&](auto& l) { l.insert(l.end() - 1, last_step); }).find(order), std::string::npos);
  EXPECT_NE(error_of([&](auto& l) { l.erase(l.begin() + 3); }).find(order), std::string::npos);
  EXPECT_NE(error_of([&](auto& l) { std::swap(l[3], l[4]); }).find(order), std::string::npos);
  EXPECT_NE(error_of([&](auto& l) { l.erase(l.end() - 2); }).find("were written"), std::string::npos);
  // As a crash leaves it.
  EXPECT_EQ(error_of([&](auto& l) { l.pop_back(); }), "");
}

TEST_F(Recordings, AreNotReadFromDevicesOrFolders) {
  for (const char* path : {"/dev/zero", "/tmp"}) {
    try {
      RecordingReader reader(path);
      ADD_FAILURE() << path;
    } catch (const Error& e) {
      EXPECT_EQ(e.what(), std::string(path) + " is neither a file nor a pipe");
    }
  }
  std::ofstream(path_) << "0";
  fs::resize_file(path_, size_t{1} << 40);  // zeros that take no space
  EXPECT_NE(error().find(":1: the line has more than 1048576 bytes"), std::string::npos) << error();
}

TEST_F(Recordings, AreRefusedWhereStatesAdvanceByOtherDrafts) {
  record(options("qwen3_next"));
  const auto all = lines();
  const std::string begin = "\"advances\":[[";
  size_t line = 0;
  while (line < all.size() && all[line].find(begin) == std::string::npos) ++line;
  ASSERT_LT(line, all.size());
  const size_t at = all[line].find(begin) + begin.size(), end = all[line].find(']', at);
  const std::string first = all[line].substr(at, end - at), slot = first.substr(0, first.find(','));
  for (const std::string& entry : {slot + ",0,1000", slot + ",-1,1", slot + ",0,0", slot + ",1000,1",
                                   first + "],[" + first, std::string("1000,0,1")}) {
    auto damaged = all;
    damaged[line].replace(at, end - at, entry);
    write(damaged);
    EXPECT_NE(error("qwen3_next").find("a recorded step advances state"), std::string::npos) << entry;
  }
  // After a step without drafts.
  auto damaged = all;
  const std::string none = "\"advances\":[]";
  damaged[1].replace(damaged[1].find(none), none.size(), "\"advances\":[[0,0,1]]");
  write(damaged);
  EXPECT_NE(error("qwen3_next").find("a recorded step advances state 0 by drafts"), std::string::npos);
}

TEST_F(Recordings, AreNotMadeWithAPageStore) {
  EngineOptions o = options("mistral");
  o.host_cache_bytes = 1 << 20;
  EXPECT_THROW(Engine{o}, Error);
}

TEST_F(Recordings, NeedAFileThatCanBeWritten) {
  EngineOptions o = options("mistral");
  o.record = "/nowhere/recording.jsonl";
  EXPECT_THROW(Engine{o}, Error);
}

}  // namespace
}  // namespace quire
