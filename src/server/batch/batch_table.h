// The batches of a server: rows that outlive it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/batch/batch_counts.h"
#include "server/batch/file_store.h"

namespace quire {

// OpenAI's: validating -> in_progress -> finalizing -> completed; failed if the input is wrong; cancelling -> cancelled;
// expired.
namespace batch_status {
inline constexpr std::string_view kValidating = "validating", kInProgress = "in_progress", kFinalizing = "finalizing",
                                  kCompleted = "completed", kFailed = "failed", kCancelling = "cancelling",
                                  kCancelled = "cancelled", kExpired = "expired";
}

// What an order has, before it is a batch.
struct BatchOrder {
  std::string endpoint;                         // the path of an ApiDefinition that is in_batches
  std::string input_file;                       // an id
  int64_t window = 24 * 3600;                   // seconds after which it expires
  std::optional<int64_t> output_lifetime = {};  // seconds that the results are kept; nullopt: for ever
  std::string metadata = "null";                // JSON
};

struct Batch : BatchOrder {
  std::string id;                       // "batch_" and 32 hexadecimal digits
  std::string tenant;                   // whose it is
  int priority = 0;                     // the tenant's, as the operator has set it
  std::string output_file, error_file;  // ids of the results; empty once it has ended without any
  std::string status;
  bool ended = false;
  std::string errors = "[]";                     // JSON: why the input is wrong
  int64_t total = 0, completed = 0, failed = 0;  // requests
  // Seconds since 1970.
  int64_t created = 0;
  std::optional<int64_t> in_progress = {}, finalizing = {}, cancelling = {}, finished = {};

  int64_t expires() const { return created + window; }
  bool validated() const { return in_progress.has_value(); }
};

// Thread-safe. Throws Error (kResource) where the disk is full or fails.
class BatchTable {
 public:
  // files must outlive it.
  explicit BatchTable(FileStore& files) : files_(files) {}

  // Throws ApiError: the input file does not exist or has another purpose (400), or the tenant has too many batches that have
  // not ended (429).
  Batch insert(const std::string& tenant, int priority, BatchOrder order);
  std::optional<Batch> find(const std::string& tenant, const std::string& id);
  // nullopt: part.after is no batch of the tenant.
  std::optional<ListedRows<Batch>> list(const std::string& tenant, const ListedPart& part);
  // Sets kCancelling, unless it has ended: ApiError (409). nullopt: there is none.
  std::optional<Batch> cancel(const std::string& tenant, const std::string& id);

  // The oldest of each tenant that has not ended, at most `most`; and those that are to end now.
  std::vector<Batch> next(size_t most, int64_t now);
  // From kValidating to kInProgress, or from there to kFinalizing. false: it was cancelled.
  bool begin(Batch& batch, int64_t now);
  bool finalize(Batch& batch, int64_t now);
  void save_counts(const Batch& batch);
  // How many batches are in each of kOpenBatchStates, and how many requests of theirs have no result, as the rows say.
  struct Tally {
    std::array<int64_t, kOpenBatchStates.size()> open{};
    int64_t unanswered = 0;
  };
  Tally tally();
  // Ends it, with the files of its results, all or nothing.
  void end(Batch& batch, std::string_view status, const std::vector<StoredFile>& results, int64_t now);

 private:
  bool move(Batch& batch, std::string_view from, std::string_view to, std::string_view column, int64_t now);
  FileStore& files_;
};

}  // namespace quire
