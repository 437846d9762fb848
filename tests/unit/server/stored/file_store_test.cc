#include "server/batch/file_store.h"

#include <gtest/gtest.h>

#include <fstream>

#include "error_of.h"
#include "server/api/error.h"
#include "server/batch/batch_table.h"
#include "unit/server/temporary_files.h"

namespace quire {
namespace {

StoredFile store(FileStore& files, const std::string& tenant, const std::string& text,
                 std::optional<int64_t> expires = {}) {
  const auto upload = files.begin_upload(tenant);
  upload->write(text);
  return upload->commit("name.jsonl", "batch", expires);
}

std::string text_of(const FileStore& files, const std::string& id) {
  std::ifstream in(files.content(id), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

size_t count_files(const std::string& folder) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) count += entry.is_regular_file() ? 1 : 0;
  return count;
}

TEST(FileStore, KeepsFilesAcrossStarts) {
  const TemporaryFolder folder;
  StoredFile made;
  {
    FileStore files(folder.path("files"), {});
    made = store(files, "a", "text");
    EXPECT_EQ(text_of(files, made.id), "text");
  }
  FileStore files(folder.path("files"), {});
  const auto found = files.find("a", made.id);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->filename, "name.jsonl");
  EXPECT_EQ(found->bytes, 4);
  EXPECT_EQ(text_of(files, made.id), "text");
  EXPECT_TRUE(files.remove("a", made.id));
  EXPECT_FALSE(files.remove("a", made.id));
  EXPECT_EQ(count_files(folder.path("files/content")), 0u);
}

TEST(FileStore, ShowsATenantItsOwnFiles) {
  const TemporaryFolder folder;
  FileStore files(folder.path("files"), {});
  const StoredFile mine = store(files, "a", "mine");
  EXPECT_FALSE(files.find("b", mine.id));
  EXPECT_FALSE(files.remove("b", mine.id));
  EXPECT_TRUE(files.list("b", "", {})->rows.empty());
  EXPECT_FALSE(files.list("b", "", {.after = mine.id})) << "another's file is no place in a list";
  for (const char* path : {"../quire.sqlite", "", ".", "' OR 1=1 --"}) EXPECT_FALSE(files.find("a", path)) << path;
}

TEST(FileStore, ListsInParts) {
  const TemporaryFolder folder;
  FileStore files(folder.path("files"), {});
  std::vector<std::string> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(store(files, "a", "x").id);
  for (const bool ascending : {false, true}) {
    std::vector<std::string> listed;
    for (ListedPart part{.limit = 2, .ascending = ascending};;) {
      const auto rows = files.list("a", "batch", part);
      for (const StoredFile& file : rows->rows) listed.push_back(file.id);
      if (!rows->more) break;
      part.after = listed.back();
    }
    if (!ascending) std::ranges::reverse(listed);
    EXPECT_EQ(listed, ids);
  }
  EXPECT_TRUE(files.list("a", "batch_output", {})->rows.empty());
}

TEST(FileStore, BoundsFilesAndTenants) {
  const TemporaryFolder folder;
  FileStore files(folder.path("files"), {.max_file_bytes = 600, .max_bytes = 1000});
  EXPECT_THROW(store(files, "a", std::string(601, 'x')), ApiError);
  EXPECT_EQ(count_files(folder.path("files/uploads")), 0u) << "what was refused is gone";
  files.share(true);
  EXPECT_THROW(store(files, "a", std::string(501, 'x')), ApiError) << "more than it leaves";
  const StoredFile half = store(files, "a", std::string(500, 'x'));
  EXPECT_THROW(store(files, "a", "x"), ApiError);
  store(files, "b", std::string(250, 'x'));
  files.share(false);
  store(files, "a", std::string(250, 'x'));
  EXPECT_THROW(store(files, "a", "x"), ApiError) << "full";
  files.remove("a", half.id);
  store(files, "a", std::string(500, 'x'));
}

TEST(FileStore, BoundsTheNumberOfFiles) {
  const TemporaryFolder folder;
  FileStore files(folder.path("files"), {.max_files = 2});
  const StoredFile first = store(files, "a", "");
  store(files, "a", "");
  EXPECT_THROW(store(files, "a", ""), ApiError);
  store(files, "b", "");
  files.remove("a", first.id);
  store(files, "a", "");
}

TEST(FileStore, RemovesFilesWhoseTimeIsOver) {
  const TemporaryFolder folder;
  FileStore files(folder.path("files"), {});
  const StoredFile early = store(files, "a", "x", 100), late = store(files, "a", "x", 200),
                   never = store(files, "a", "x");
  files.remove_expired(150);
  EXPECT_FALSE(files.find("a", early.id));
  EXPECT_TRUE(files.find("a", late.id) && files.find("a", never.id));
  EXPECT_EQ(count_files(folder.path("files/content")), 2u);
}

TEST(FileStore, ClearsAwayWhatAKilledServerHasLeft) {
  const TemporaryFolder folder;
  std::string kept;
  {
    FileStore files(folder.path("files"), {});
    kept = store(files, "a", "kept").id;
  }
  folder.write("files/uploads/file-half", "ha");
  folder.write("files/content/file-without-row", "x");
  FileStore files(folder.path("files"), {});
  EXPECT_EQ(count_files(folder.path("files/uploads")), 0u);
  EXPECT_EQ(count_files(folder.path("files/content")), 1u);
  EXPECT_EQ(text_of(files, kept), "kept");
}

TEST(FileStore, BelongsToOneServer) {
  const TemporaryFolder folder;
  const FileStore files(folder.path("files"), {});
  EXPECT_NE(error_of([&] { FileStore(folder.path("files"), {}); }).find("another server uses this folder"),
            std::string::npos);
}

TEST(FileStore, SaysWhatIsWrongWithItsFolder) {
  const TemporaryFolder folder;
  EXPECT_NE(error_of([&] { FileStore(folder.write("file", "x"), {}); }), "");
  std::filesystem::create_directories(folder.path("damaged"));
  folder.write("damaged/quire.sqlite", std::string(10'000, 'x'));
  EXPECT_NE(error_of([&] { FileStore(folder.path("damaged"), {}); }).find("quire.sqlite"), std::string::npos);
}

TEST(BatchTable, MovesBatchesThroughTheirStatuses) {
  const TemporaryFolder folder;
  FileStore files(folder.path("files"), {});
  BatchTable table(files);
  const StoredFile input = store(files, "a", "x");
  EXPECT_THROW(table.insert("b", 0, {.endpoint = "/v1/completions", .input_file = input.id}), ApiError)
      << "another's file";
  Batch batch = table.insert("a", 3, {.endpoint = "/v1/completions", .input_file = input.id});
  EXPECT_EQ(table.find("a", batch.id)->status, "validating");
  EXPECT_FALSE(table.find("b", batch.id));
  EXPECT_THROW(files.remove("a", input.id), ApiError) << "it is being read";
  EXPECT_TRUE(table.begin(batch, 10));
  EXPECT_FALSE(table.begin(batch, 10));
  batch.total = batch.completed = 2;
  EXPECT_TRUE(table.finalize(batch, 20));
  table.end(
      batch, batch_status::kCompleted,
      {{.id = batch.output_file, .tenant = "a", .filename = "o", .purpose = "batch_output", .bytes = 5, .created = 20}},
      30);
  const Batch ended = *table.find("a", batch.id);
  EXPECT_EQ(ended.status, "completed");
  EXPECT_EQ(ended.finished, 30);
  EXPECT_EQ(ended.completed, 2);
  EXPECT_EQ(ended.error_file, "") << "it has no line";
  EXPECT_TRUE(files.find("a", ended.output_file));
  EXPECT_THROW(table.cancel("a", batch.id), ApiError) << "it has ended";
  EXPECT_FALSE(table.cancel("b", batch.id));
  EXPECT_TRUE(table.next(8, 0).empty());
  EXPECT_TRUE(files.remove("a", input.id));
}

TEST(BatchTable, GivesTheOldestOfEachTenantAndWhatIsToEnd) {
  const TemporaryFolder folder;
  FileStore files(folder.path("files"), {});
  BatchTable table(files);
  const StoredFile of_a = store(files, "a", "x"), of_b = store(files, "b", "x");
  const auto make = [&](const StoredFile& input, int64_t window) {
    return table.insert(input.tenant, 0, {.endpoint = "/v1/completions", .input_file = input.id, .window = window}).id;
  };
  const std::string a1 = make(of_a, 1000), a2 = make(of_a, 1000), b1 = make(of_b, 1000), a3 = make(of_a, 5);
  const int64_t now = table.find("a", a1)->created;
  const auto ids = [&](int64_t at) {
    std::vector<std::string> found;
    for (const Batch& batch : table.next(8, at)) found.push_back(batch.id);
    return found;
  };
  EXPECT_EQ(ids(now), (std::vector{a1, b1}));
  EXPECT_EQ(ids(now + 10), (std::vector{a1, b1, a3})) << "its time is over";
  table.cancel("a", a2);
  EXPECT_EQ(ids(now), (std::vector{a1, b1, a2}));
  const auto listed = table.list("a", {.limit = 2});
  ASSERT_EQ(listed->rows.size(), 2u);
  EXPECT_EQ(listed->rows[0].id, a3);
  EXPECT_TRUE(listed->more);
  EXPECT_EQ(table.list("a", {.after = listed->rows[1].id})->rows[0].id, a1);
}

}  // namespace
}  // namespace quire
