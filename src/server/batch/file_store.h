// The folder of a server's files (--files-dir): what clients upload, and the results of batches.
//
//   lock             held by the server that uses the folder
//   quire.sqlite     tables of files and batches
//   content/file-…   the bytes of a file; the name is its id
//   uploads/…        files that are being received
//
// Names that clients give are kept in the table, and never name anything on the disk.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/file_lock.h"
#include "server/batch/database.h"

namespace quire {

struct FileStoreLimits {
  uint64_t max_file_bytes = uint64_t{512} << 20;  // of one file
  uint64_t max_bytes = uint64_t{16} << 30;        // of all files that clients upload, with the results of batches
  int max_files = 10'000;                         // of a tenant, likewise
};

struct StoredFile {
  std::string id;        // "file-" and 32 hexadecimal digits
  std::string tenant;    // whose it is
  std::string filename;  // as the client says
  std::string purpose;   // "batch", "batch_output"
  int64_t bytes = 0;
  int64_t created = 0;             // seconds since 1970
  std::optional<int64_t> expires;  // likewise; nullopt: never
};

// What part of a list is wanted.
struct ListedPart {
  std::optional<std::string> after;  // the id of the last one of the part before; nullopt: the first part
  int limit = 20;
  bool ascending = false;  // oldest first
};

template <class Row>
struct ListedRows {
  std::vector<Row> rows;
  bool more = false;  // after these
};

// Thread-safe. A tenant sees its own files only. Throws Error (kResource) where the disk is full or fails.
class FileStore {
 public:
  // A file that is being received. Removed if it dies before commit().
  class Upload {
   public:
    ~Upload();
    Upload(const Upload&) = delete;
    Upload& operator=(const Upload&) = delete;
    // Throws ApiError (413): the file, or all files together, would be larger than allowed.
    void write(std::string_view bytes);
    uint64_t bytes() const { return bytes_; }
    // Once, when all is written.
    StoredFile commit(std::string filename, std::string purpose, std::optional<int64_t> expires);

   private:
    friend class FileStore;
    Upload(FileStore& store, std::string tenant);
    FileStore& store_;
    const std::string tenant_, id_;
    const std::filesystem::path path_;
    int descriptor_ = -1;
    uint64_t bytes_ = 0, reserved_ = 0;
  };

  // Creates the folder if needed. Throws Error: another server uses it, it cannot be written, its table is damaged.
  FileStore(std::filesystem::path folder, FileStoreLimits limits);
  ~FileStore();

  // Among several tenants, each may hold as many bytes as it leaves free.
  void share(bool shared) { shared_ = shared; }

  // Throws ApiError (413): the tenant has as many files as it may.
  std::unique_ptr<Upload> begin_upload(const std::string& tenant);
  std::optional<StoredFile> find(const std::string& tenant, const std::string& id);
  // purpose: empty: any. nullopt: part.after is no file of the tenant.
  std::optional<ListedRows<StoredFile>> list(const std::string& tenant, std::string_view purpose,
                                             const ListedPart& part);
  // Throws ApiError (409) if a batch that has not ended reads it. false: there is no such file.
  bool remove(const std::string& tenant, const std::string& id);
  // Removes files whose time is over, but those that such a batch reads.
  void remove_expired(int64_t now);

  std::filesystem::path content(const std::string& id) const { return folder_ / "content" / id; }

  // For BatchTable, which has tables of its own in the same database. The lock guards the database.
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  Database& database() { return database_; }
  // With the lock held: the row of a file that content() has already; once that is committed, its bytes.
  void insert(const StoredFile& file);
  void count(const StoredFile& file);

 private:
  void reserve(const std::string& tenant, uint64_t bytes);
  void give_back(const std::string& tenant, uint64_t bytes);
  void remove_row(const StoredFile& file);
  void remove_leftovers();

  const std::filesystem::path folder_;
  const FileStoreLimits limits_;
  std::atomic<bool> shared_{false};
  const std::unique_ptr<FileLock> lock_;
  std::mutex mutex_;
  Database database_;
  uint64_t held_ = 0;                      // bytes of all files
  std::map<std::string, uint64_t> owned_;  // by tenant
};

std::string random_file_id();

}  // namespace quire
