#include "cluster/cluster_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "error_of.h"

namespace quire {
namespace {

class ClusterFile : public ::testing::Test {
 protected:
  ~ClusterFile() override { std::filesystem::remove(path_); }

  std::vector<ClusterSpec> read(const std::string& text) {
    std::ofstream(path_) << text;
    return read_clusters(path_, {});
  }
  std::string error(const std::string& text) {
    return error_of([&] { read(text); });
  }

 private:
  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("quire-cluster-" + std::to_string(::getpid()) + ".json")).string();
};

TEST_F(ClusterFile, HasEveryCombination) {
  const auto specs = read(R"({"replicas": [1, 4], "router": ["round_robin", "prefix"], "tensor_parallel": 2,
      "max_num_seqs": 600, "tpot_target_ms": 20, "cache_tokens": 4096, "prefix_cache": false,
      "network": {"latency_ms": 1, "gbits_per_second": 8}, "prefix_routing": {"least_match": 0.5}})");
  ASSERT_EQ(specs.size(), 4u);
  EXPECT_EQ(specs[1].replicas, 1);
  EXPECT_EQ(specs[1].policy, RoutingPolicy::kPrefix);
  EXPECT_EQ(specs[2].replicas, 4);
  EXPECT_EQ(specs[2].machines(), 8);
  EXPECT_EQ(specs[2].limits.max_running, 600);
  EXPECT_EQ(specs[2].limits.max_rows, 600);  // a row for each
  EXPECT_DOUBLE_EQ(specs[2].limits.tpot_target, 0.02);
  EXPECT_EQ(specs[2].cache_tokens, 4096);
  EXPECT_FALSE(specs[2].prefix_cache);
  EXPECT_DOUBLE_EQ(specs[2].network.seconds(1e6), 2e-3);
  EXPECT_DOUBLE_EQ(specs[2].prefix.least_match, 0.5);
  EXPECT_EQ(read("{}").size(), 1u);
  EXPECT_EQ(read(R"({"replicas": 4, "at_once": 2})")[0].machines(), 2);
}

TEST_F(ClusterFile, NamesTheFieldThatIsWrong) {
  EXPECT_NE(error(R"({"replica": 3})").find("replica: is not a field of a cluster"), std::string::npos);
  EXPECT_NE(error(R"({"replica": 3})").find("Did you mean replicas?"), std::string::npos);
  EXPECT_NE(error(R"({"replicas": 0})").find("replicas"), std::string::npos);
  EXPECT_NE(error(R"({"replicas": [1, 2000]})").find("replicas[1]"), std::string::npos);
  EXPECT_NE(error(R"({"replicas": []})").find("must not be empty"), std::string::npos);
  EXPECT_NE(error(R"({"replicas": 1.5})").find("replicas"), std::string::npos);
  EXPECT_NE(error(R"({"router": "random"})").find("round_robin, least_load, power_of_two, prefix"), std::string::npos);
  EXPECT_NE(error(R"({"network": {"latency": 1}})").find("network.latency"), std::string::npos);
  EXPECT_NE(error(R"({"network": {"latency_ms": -1}})").find("network.latency_ms"), std::string::npos);
  EXPECT_NE(error(R"({"network": {"gbits_per_second": 0}})").find("gbits_per_second"), std::string::npos);
  EXPECT_NE(error(R"({"at_once": 0.5})").find("at_once"), std::string::npos);
  EXPECT_NE(error(R"({"max_num_seqs": 8, "max_num_batched_tokens": 4})").find("max_num_batched_tokens"),
            std::string::npos);
  EXPECT_NE(error("[1]").find("object"), std::string::npos);
  EXPECT_NE(error("{").find(".json"), std::string::npos);
  std::string many = R"({"replicas": [1)";
  for (int i = 2; i <= 90; ++i) many += ", " + std::to_string(i);
  EXPECT_NE(error(many + R"(], "tensor_parallel": [1, 2, 3]})").find("270 combinations"), std::string::npos);
}

}  // namespace
}  // namespace quire
