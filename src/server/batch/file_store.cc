#include "server/batch/file_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files/write_all.h"
#include "server/api/answer/answer.h"
#include "server/api/error.h"
#include "server/api/service.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// A batch's row is made before its results have rows: until it has ended, it names their files.
constexpr std::string_view kSchema = R"sql(
  CREATE TABLE files (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL, filename TEXT NOT NULL,
    purpose TEXT NOT NULL, bytes INTEGER NOT NULL, created INTEGER NOT NULL, expires INTEGER);
  CREATE INDEX files_of_tenant ON files (tenant, number);
  CREATE TABLE batches (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL, priority INTEGER NOT NULL,
    endpoint TEXT NOT NULL, input_file TEXT NOT NULL, output_file TEXT NOT NULL, error_file TEXT NOT NULL,
    window INTEGER NOT NULL, output_lifetime INTEGER, metadata TEXT NOT NULL, status TEXT NOT NULL, ended INTEGER NOT NULL,
    errors TEXT NOT NULL, total INTEGER NOT NULL, completed INTEGER NOT NULL, failed INTEGER NOT NULL,
    created INTEGER NOT NULL, in_progress INTEGER, finalizing INTEGER, cancelling INTEGER, finished INTEGER);
  CREATE INDEX batches_of_tenant ON batches (tenant, number);
  CREATE INDEX unfinished_batches ON batches (number) WHERE ended = 0;
)sql";
constexpr int kSchemaVersion = 1;

constexpr std::string_view kFileColumns = "id, tenant, filename, purpose, bytes, created, expires";

StoredFile file_row(const Database::Statement& row) {
  return {.id = row.text(0),
          .tenant = row.text(1),
          .filename = row.text(2),
          .purpose = row.text(3),
          .bytes = row.integer(4),
          .created = row.integer(5),
          .expires = row.optional_integer(6)};
}

std::unique_ptr<FileLock> lock_folder(const fs::path& folder) {
  std::error_code error;
  for (const char* inner : {"content", "uploads"}) {
    fs::create_directories(folder / inner, error);
    if (error) throw invalid("--files-dir {}: it cannot be created: {}", folder.string(), error.message());
  }
  fs::permissions(folder, fs::perms::owner_all, error);  // what clients send is not for everybody
  auto lock = FileLock::try_take(folder / "lock");
  if (!lock)
    throw invalid("--files-dir {}: another server uses this folder; give each server its own", folder.string());
  return lock;
}

ApiError too_large_file(uint64_t most) {
  return {413, fmt::format("the file is larger than {} MiB (--max-file-size)", most >> 20), "invalid_request_error",
          "file", "file_too_large"};
}

}  // namespace

std::string random_file_id() { return random_id("file-"); }

FileStore::FileStore(fs::path folder, FileStoreLimits limits)
    : folder_(std::move(folder)),
      limits_(limits),
      lock_(lock_folder(folder_)),
      database_(folder_ / "quire.sqlite", kSchema, kSchemaVersion) {
  auto rows = database_.query("SELECT tenant, SUM(bytes) FROM files GROUP BY tenant");
  while (rows.next()) {
    const auto bytes = static_cast<uint64_t>(rows.integer(1));
    owned_[rows.text(0)] = bytes;
    held_ += bytes;
  }
  remove_leftovers();
}

FileStore::~FileStore() = default;

// Uploads that were cut off, and contents whose row was removed or never written.
void FileStore::remove_leftovers() {
  std::set<std::string> known;
  auto rows = database_.query(
      "SELECT id FROM files UNION SELECT output_file FROM batches WHERE ended = 0 UNION SELECT error_file FROM batches "
      "WHERE ended = 0");
  while (rows.next()) known.insert(rows.text(0));
  std::vector<fs::path> unknown;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_ / "uploads", ignored)) unknown.push_back(entry.path());
  for (const auto& entry : fs::directory_iterator(folder_ / "content", ignored)) {
    if (!known.contains(entry.path().filename().string())) unknown.push_back(entry.path());
  }
  for (const fs::path& path : unknown) fs::remove(path, ignored);
}

std::unique_ptr<FileStore::Upload> FileStore::begin_upload(const std::string& tenant) {
  {
    const std::lock_guard lock(mutex_);
    auto count = database_.query("SELECT COUNT(*) FROM files WHERE tenant = ?", {tenant});
    if (count.next() && count.integer(0) >= limits_.max_files)
      throw ApiError(
          413, fmt::format("there are {} files already; delete some that are no longer needed", limits_.max_files),
          "invalid_request_error", "file", "too_many_files");
  }
  return std::unique_ptr<Upload>(new Upload(*this, tenant));
}

void FileStore::reserve(const std::string& tenant, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const uint64_t free = limits_.max_bytes - std::min(limits_.max_bytes, held_);
  const uint64_t own = owned_[tenant];
  const uint64_t most = shared_ ? free / 2 - std::min(free / 2, own / 2) : free;  // own + bytes <= free - bytes
  if (bytes > most)
    throw ApiError(413,
                   fmt::format("there is no room for the file: the server keeps {} MiB of files at most "
                               "(--max-files-size), and {} MiB are free{}; delete files that are no longer needed",
                               limits_.max_bytes >> 20, free >> 20,
                               shared_ ? ", of which each API key may take as much as it leaves" : ""),
                   "invalid_request_error", "file", "no_room");
  held_ += bytes;
  owned_[tenant] = own + bytes;
}

void FileStore::give_back(const std::string& tenant, uint64_t bytes) {
  held_ -= std::min(held_, bytes);
  uint64_t& own = owned_[tenant];
  own -= std::min(own, bytes);
}

FileStore::Upload::Upload(FileStore& store, std::string tenant)
    : store_(store),
      tenant_(std::move(tenant)),
      id_(random_file_id()),
      path_(store.folder_ / "uploads" / id_),
      descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)) {
  if (descriptor_ < 0) throw no_resource("{} cannot be written: {}", path_.string(), std::strerror(errno));
}

FileStore::Upload::~Upload() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(path_.c_str());
  const std::lock_guard lock(store_.mutex_);
  store_.give_back(tenant_, reserved_);
}

void FileStore::Upload::write(std::string_view bytes) {
  constexpr uint64_t kReservedAtOnce = uint64_t{1} << 20;
  if (bytes_ + bytes.size() > store_.limits_.max_file_bytes) throw too_large_file(store_.limits_.max_file_bytes);
  if (bytes_ + bytes.size() > reserved_) {
    const uint64_t more = std::max<uint64_t>(bytes_ + bytes.size() - reserved_,
                                             std::min(kReservedAtOnce, store_.limits_.max_file_bytes - reserved_));
    try {
      store_.reserve(tenant_, more);
      reserved_ += more;
    } catch (const ApiError&) {
      const uint64_t least = bytes_ + bytes.size() - reserved_;  // all that is really needed
      store_.reserve(tenant_, least);
      reserved_ += least;
    }
  }
  if (const int reason = write_all(descriptor_, bytes); reason != 0)
    throw no_resource("the file cannot be stored: {}", std::strerror(reason));
  bytes_ += bytes.size();
}

StoredFile FileStore::Upload::commit(std::string filename, std::string purpose, std::optional<int64_t> expires) {
  if (::fdatasync(descriptor_) != 0) throw no_resource("the file cannot be stored: {}", std::strerror(errno));
  StoredFile file{.id = id_,
                  .tenant = tenant_,
                  .filename = std::move(filename),
                  .purpose = std::move(purpose),
                  .bytes = static_cast<int64_t>(bytes_),
                  .created = unix_seconds(),
                  .expires = expires};
  const fs::path content = store_.content(id_);
  std::error_code error;
  fs::rename(path_, content, error);
  if (error) throw no_resource("{} cannot be written: {}", content.string(), error.message());
  const std::lock_guard lock(store_.mutex_);
  try {
    store_.insert(file);
  } catch (...) {
    fs::rename(content, path_, error);
    throw;
  }
  store_.give_back(tenant_, reserved_);
  store_.count(file);
  ::close(std::exchange(descriptor_, -1));
  return file;
}

void FileStore::insert(const StoredFile& file) {
  database_.run(
      "INSERT INTO files (id, tenant, filename, purpose, bytes, created, expires) VALUES (?, ?, ?, ?, ?, ?, ?)",
      {file.id, file.tenant, file.filename, file.purpose, file.bytes, file.created, sql_value(file.expires)});
}

void FileStore::count(const StoredFile& file) {
  held_ += static_cast<uint64_t>(file.bytes);
  owned_[file.tenant] += static_cast<uint64_t>(file.bytes);
}

std::optional<StoredFile> FileStore::find(const std::string& tenant, const std::string& id) {
  const std::lock_guard lock(mutex_);
  auto row =
      database_.query(fmt::format("SELECT {} FROM files WHERE id = ? AND tenant = ?", kFileColumns), {id, tenant});
  if (!row.next()) return std::nullopt;
  return file_row(row);
}

std::optional<ListedRows<StoredFile>> FileStore::list(const std::string& tenant, std::string_view purpose,
                                                      const ListedPart& part) {
  const std::lock_guard lock(mutex_);
  int64_t after = part.ascending ? 0 : INT64_MAX;
  if (part.after) {
    auto row = database_.query("SELECT number FROM files WHERE id = ? AND tenant = ?", {*part.after, tenant});
    if (!row.next()) return std::nullopt;
    after = row.integer(0);
  }
  auto rows = database_.query(
      fmt::format(
          "SELECT {} FROM files WHERE tenant = ? AND (? = '' OR purpose = ?) AND number {} ? ORDER BY number {} "
          "LIMIT ?",
          kFileColumns, part.ascending ? '>' : '<', part.ascending ? "ASC" : "DESC"),
      {tenant, purpose, purpose, after, int64_t{part.limit} + 1});
  ListedRows<StoredFile> listed;
  while (rows.next()) listed.rows.push_back(file_row(rows));
  listed.more = std::cmp_greater(listed.rows.size(), part.limit);
  if (listed.more) listed.rows.pop_back();
  return listed;
}

void FileStore::remove_row(const StoredFile& file) {
  database_.run("DELETE FROM files WHERE id = ?", {file.id});
  give_back(file.tenant, static_cast<uint64_t>(file.bytes));
  std::error_code ignored;  // what stays is removed at the next start
  fs::remove(content(file.id), ignored);
}

bool FileStore::remove(const std::string& tenant, const std::string& id) {
  const std::optional<StoredFile> file = find(tenant, id);
  if (!file) return false;
  const std::lock_guard lock(mutex_);
  if (auto batch = database_.query("SELECT id FROM batches WHERE ended = 0 AND input_file = ?", {id}); batch.next())
    throw ApiError(409, fmt::format("the batch {} still reads this file; cancel it first", batch.text(0)),
                   "invalid_request_error", {}, "file_in_use");
  remove_row(*file);
  return true;
}

void FileStore::remove_expired(int64_t now) {
  const std::lock_guard lock(mutex_);
  std::vector<StoredFile> expired;
  {
    auto rows = database_.query(fmt::format("SELECT {} FROM files WHERE expires <= ? AND id NOT IN (SELECT input_file "
                                            "FROM batches WHERE ended = 0)",
                                            kFileColumns),
                                {now});
    while (rows.next()) expired.push_back(file_row(rows));
  }
  for (const StoredFile& file : expired) remove_row(file);
}

}  // namespace quire
