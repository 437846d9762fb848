#include "hub/hub_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/files/file_lock.h"
#include "base/files/mapped_file.h"
#include "base/files/whole_file.h"
#include "error_of.h"
#include "hub/digest.h"
#include "hub/range_journal.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

const std::string kOld(40, 'a'), kNew(40, 'b');

struct HubCache : ::testing::Test {
  const fs::path cache = fs::temp_directory_path() / ("quire-hub-cache-" + std::to_string(::getpid()));
  const CachedRepo repo{cache, "org/x"};

  void SetUp() override { fs::create_directories(repo.folder() / "blobs"); }
  ~HubCache() override { fs::remove_all(cache); }

  void store(const std::string& commit, const std::string& path, const std::string& etag, const std::string& content) {
    write_whole_file(repo.blob(etag), content);
    repo.link(commit, path, etag);
  }
};

TEST_F(HubCache, HasTheLayoutOfTheHubsClient) {
  store(kOld, "dir/x.gguf", "etag", "content");
  repo.set_commit("main", kOld);
  EXPECT_EQ(fs::read_symlink(cache / "models--org--x/snapshots" / kOld / "dir/x.gguf"), "../../../blobs/etag");
  EXPECT_EQ(read_text_file(cache / "models--org--x/refs/main"), kOld);
  EXPECT_EQ(repo.commit_of("main"), kOld);
  EXPECT_EQ(repo.commit_of(kNew), kNew) << "a commit stands for itself";
  EXPECT_EQ(repo.commit_of("v1"), std::nullopt);
  ASSERT_EQ(repo.files(kOld).size(), 1u);
  EXPECT_EQ(repo.files(kOld)[0].path, "dir/x.gguf");
  EXPECT_EQ(repo.files(kOld)[0].size, 7u);
  EXPECT_EQ(cached_repos(cache), std::vector<std::string>{"org/x"});
}

TEST_F(HubCache, DoesNotCountFilesWhoseContentIsGone) {
  store(kOld, "x", "etag", "content");
  fs::remove(repo.blob("etag"));
  EXPECT_TRUE(repo.files(kOld).empty());
}

TEST_F(HubCache, LinksANewBlobInPlaceOfAnOldOne) {
  store(kOld, "x", "one", "1");
  store(kOld, "x", "two", "22");
  EXPECT_EQ(read_text_file(repo.snapshot(kOld) / "x"), "22");
}

TEST_F(HubCache, KeepsBlobsThatAnotherSnapshotUses) {
  store(kOld, "x", "shared", "1");
  store(kOld, "y", "old", "22");
  store(kNew, "x", "shared", "1");
  EXPECT_EQ(repo.remove(kOld, repo.files(kOld)), 2u);
  EXPECT_TRUE(fs::exists(repo.blob("shared")));
  EXPECT_FALSE(fs::exists(repo.blob("old")));
  EXPECT_FALSE(fs::exists(repo.snapshot(kOld)));
  EXPECT_EQ(repo.remove(kNew, repo.files(kNew)), 1u);
  EXPECT_FALSE(fs::exists(repo.folder()));
}

TEST_F(HubCache, RemovesNothingWhileABlobIsDownloaded) {
  store(kOld, "x", "etag", "1");
  create_folder(repo.lock_file("etag").parent_path());
  const auto lock = FileLock::try_take(repo.lock_file("etag"));
  ASSERT_TRUE(lock);
  EXPECT_FALSE(FileLock::try_take(repo.lock_file("etag")));
  EXPECT_NE(error_of([&] { repo.remove(kOld, repo.files(kOld)); }), "");
  EXPECT_EQ(repo.files(kOld).size(), 1u);
}

TEST_F(HubCache, RemovesOnlyLinksOfASnapshotThatLeadOut) {
  const fs::path outside = cache / "outside";
  write_whole_file(outside, "mine");
  fs::create_directories(repo.snapshot(kOld));
  fs::create_symlink(outside, repo.snapshot(kOld) / "x");
  repo.remove(kOld, repo.files(kOld));
  EXPECT_TRUE(fs::exists(outside));
}

TEST_F(HubCache, HashesFilesAsTheHubDoes) {
  const fs::path file = cache / "hello";
  write_whole_file(file, "hello\n");
  EXPECT_EQ(digest_of_file(file, DigestKind::kGitBlob), "ce013625030ba8dba906f756967f9e9ca394464a");  // git hash-object
  EXPECT_EQ(digest_of_file(file, DigestKind::kSha256),
            "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
  EXPECT_EQ(sha256_of("hello\n"), digest_of_file(file, DigestKind::kSha256));
}

TEST_F(HubCache, ContinuesTheRangesOfAJournal) {
  const fs::path file = cache / "ranges", partial = cache / "partial";
  constexpr uint64_t kSize = 200'000, kPiece = 1 << 16;
  RangeJournal journal("etag", kSize, kPiece);
  ASSERT_EQ(journal.pieces(), 4u);
  EXPECT_EQ(journal.bytes(3), kSize - 3 * kPiece);
  journal.add(0, kPiece);
  journal.add(2, 100);
  journal.save(file);
  const auto load = [&](const std::string& etag) { return RangeJournal::load(file, partial, etag, kSize, kPiece); };
  EXPECT_EQ(load("etag").total(), 0u) << "without the file";
  write_whole_file(partial, std::string(kSize, 'x'));
  EXPECT_EQ(load("etag").total(), kPiece + 100);
  EXPECT_TRUE(load("etag").is_complete(0));
  EXPECT_EQ(load("etag").done(2), 100u);
  EXPECT_EQ(load("other").total(), 0u) << "of another content";
  write_whole_file(partial, "short");
  EXPECT_EQ(load("etag").total(), 0u);
}

TEST(RangeJournalText, MustDescribeTheFile) {
  const auto parse = [](const char* text) { return error_of([&] { RangeJournal::parse(text, "e", 100'000); }); };
  EXPECT_EQ(parse(R"({"etag": "e", "size": 100000, "piece": 65536, "done": [65536, 1]})"), "");
  for (const char* text : {"", "[]", R"({"etag": "e", "size": 100000, "piece": 65536, "done": [65537, 0]})",
                           R"({"etag": "e", "size": 100000, "piece": 65536, "done": [0]})",
                           R"({"etag": "e", "size": 100000, "piece": 1, "done": []})",
                           R"({"etag": "e", "size": 100000, "piece": 65536, "done": [-1, 0]})",
                           R"({"etag": "e", "size": 99999, "piece": 65536, "done": [0, 0]})"})
    EXPECT_NE(parse(text), "") << text;
}

}  // namespace
}  // namespace quire
