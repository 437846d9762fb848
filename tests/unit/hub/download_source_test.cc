#include "hub/download_source.h"

#include <gtest/gtest.h>

#include "error_of.h"

namespace quire {
namespace {

std::string respelled(const std::string& name) { return source_name(parse_download_source(name).value()); }

HubReference hub_name(const std::string& name) { return std::get<HubReference>(parse_download_source(name).value()); }

TEST(DownloadSource, LeavesPathsAndRegisteredNamesAlone) {
  for (const char* name : {"smollm2", "model.gguf", "/models/x", "org/repo", "hf", "", "file:///x", "C:\\x"})
    EXPECT_FALSE(parse_download_source(name)) << name;
}

TEST(DownloadSource, ReadsNamesOfTheHub) {
  const HubReference all = hub_name("hf:org/re-po.1@refs/pr/1:dir/x-Q4_0.gguf");
  EXPECT_EQ(all.repo, "org/re-po.1");
  EXPECT_EQ(all.revision, "refs/pr/1");
  EXPECT_EQ(all.choice, "dir/x-Q4_0.gguf");
  EXPECT_EQ(hub_name("hf:gpt2").repo, "gpt2");
  EXPECT_EQ(hub_name("hf:gpt2").revision, "main");
  EXPECT_EQ(hub_name("hf:gpt2:q8_0").choice, "q8_0");
}

TEST(DownloadSource, SpellsNamesAsTheyAreGiven) {
  for (const char* name : {"hf:org/x", "hf:org/x:Q4_K_M", "hf:org/x@v1:a/b.gguf", "ollama:llama3.2:1b",
                           "ollama:user/x:latest", "ollama:127.0.0.1:8080/library/x:latest", "https://a.b/x.gguf?y=1"})
    EXPECT_EQ(respelled(name), name);
  EXPECT_EQ(respelled("ollama:x"), "ollama:x:latest");
}

TEST(DownloadSource, ReadsPagesOfTheHubAsItsNames) {
  EXPECT_EQ(respelled("https://huggingface.co/org/x"), "hf:org/x");
  EXPECT_EQ(respelled("https://hf.co/org/x/"), "hf:org/x");
  EXPECT_EQ(respelled("https://huggingface.co/org/x/resolve/main/a/b.gguf?download=true"), "hf:org/x:a/b.gguf");
  EXPECT_EQ(respelled("https://huggingface.co/org/x/blob/v1/b.gguf"), "hf:org/x@v1:b.gguf");
}

TEST(DownloadSource, ReadsTheHashOfAUrl) {
  const std::string hash(64, 'A');
  const auto url = std::get<UrlReference>(parse_download_source("https://a/x.gguf#sha256=" + hash).value());
  EXPECT_EQ(url.url, "https://a/x.gguf");
  EXPECT_EQ(url.sha256, std::string(64, 'a'));
  EXPECT_NE(error_of([] { parse_download_source("https://a/x.gguf#sha256=12"); }), "");
  EXPECT_NE(error_of([] { parse_download_source("https://a/x.gguf#part"); }), "");
}

TEST(DownloadSource, RefusesNamesThatAreNoPartsOfPaths) {
  for (const char* name : {"hf:",
                           "hf:/x",
                           "hf:org/",
                           "hf:../x",
                           "hf:org/..",
                           "hf:org/a/b",
                           "hf:org/a--b",
                           "hf:-a/b",
                           "hf:a./b",
                           "hf:a b/c",
                           "hf:a/b@",
                           "hf:a/b@../x",
                           "hf:a/b@-x",
                           "hf:a/b:",
                           "hf:a/b:../x",
                           "hf:a/b:/x",
                           "hf:a/b:x//y",
                           "ollama:",
                           "ollama:a/b/c/d",
                           "ollama:a:..",
                           "ollama:../a",
                           "ollama:h:port/a/b",
                           "https://u:p@h/x.gguf",
                           "https://a/\nx",
                           "https://huggingface.co/"})
    EXPECT_NE(error_of([&] { parse_download_source(name); }), "") << name;
}

TEST(RepositoryPaths, StayInside) {
  for (const char* path : {"a", "a/b.gguf", "..a/b..", ".hidden"}) EXPECT_TRUE(is_path_inside(path)) << path;
  for (const char* path : {"", "/", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\\b", "a\nb", "a\x7f"})
    EXPECT_FALSE(is_path_inside(path)) << path;
  EXPECT_FALSE(is_path_inside(std::string(300, 'a')));
}

}  // namespace
}  // namespace quire
