#include "server/batch/batch_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "json/parse.h"
#include "server/api/answer/answer.h"
#include "server/api/error.h"
#include "server/api/service.h"

namespace quire {
namespace {

constexpr int kMostUnfinished = 1000;    // of one tenant
constexpr int kMostRemembered = 10'000;  // of one tenant, ended ones

constexpr std::string_view kBatchColumns =
    "id, tenant, priority, endpoint, input_file, output_file, error_file, window, output_lifetime, metadata, "
    "status, ended, errors, total, completed, failed, created, in_progress, finalizing, cancelling, finished";

Batch batch_row(const Database::Statement& row) {
  Batch batch;
  batch.id = row.text(0);
  batch.tenant = row.text(1);
  batch.priority = static_cast<int>(row.integer(2));
  batch.endpoint = row.text(3);
  batch.input_file = row.text(4);
  batch.output_file = row.text(5);
  batch.error_file = row.text(6);
  batch.window = row.integer(7);
  batch.output_lifetime = row.optional_integer(8);
  batch.metadata = row.text(9);
  batch.status = row.text(10);
  batch.ended = row.integer(11) != 0;
  batch.errors = row.text(12);
  batch.total = row.integer(13);
  batch.completed = row.integer(14);
  batch.failed = row.integer(15);
  batch.created = row.integer(16);
  batch.in_progress = row.optional_integer(17);
  batch.finalizing = row.optional_integer(18);
  batch.cancelling = row.optional_integer(19);
  batch.finished = row.optional_integer(20);
  return batch;
}

std::optional<Batch> find_batch(Database& database, const std::string& tenant, const std::string& id) {
  auto row =
      database.query(fmt::format("SELECT {} FROM batches WHERE id = ? AND tenant = ?", kBatchColumns), {id, tenant});
  if (!row.next()) return std::nullopt;
  return batch_row(row);
}

void require_input(Database& database, const std::string& tenant, const std::string& file) {
  auto row = database.query("SELECT purpose FROM files WHERE id = ? AND tenant = ?", {file, tenant});
  if (!row.next())
    throw bad_request("input_file_id", "there is no file {}; upload it with POST /v1/files", describe(Json(file)));
  if (row.text(0) != "batch")
    throw bad_request("input_file_id", "the file {} has the purpose {}; upload it with the purpose batch",
                      describe(Json(file)), describe(Json(row.text(0))));
}

}  // namespace

Batch BatchTable::insert(const std::string& tenant, int priority, BatchOrder order) {
  Batch batch;
  static_cast<BatchOrder&>(batch) = std::move(order);
  batch.id = random_id("batch_");
  batch.tenant = tenant;
  batch.priority = priority;
  batch.output_file = random_file_id();
  batch.error_file = random_file_id();
  batch.status = batch_status::kValidating;
  batch.created = unix_seconds();
  const auto lock = files_.lock();
  Database& database = files_.database();
  require_input(database, tenant, batch.input_file);
  auto count = database.query("SELECT COUNT(*) FROM batches WHERE tenant = ? AND ended = 0", {tenant});
  if (count.next() && count.integer(0) >= kMostUnfinished) {
    ApiError error(429,
                   fmt::format("{} batches have not ended; wait for some of them, or cancel them", kMostUnfinished),
                   "rate_limit_error", {}, "too_many_batches");
    error.retry_after = 60;
    throw error;
  }
  database.run(
      "DELETE FROM batches WHERE tenant = ? AND ended = 1 AND number <= "
      "(SELECT number FROM batches WHERE tenant = ? AND ended = 1 ORDER BY number DESC LIMIT 1 OFFSET ?)",
      {tenant, tenant, int64_t{kMostRemembered}});
  database.run(
      "INSERT INTO batches (id, tenant, priority, endpoint, input_file, output_file, error_file, window, "
      "output_lifetime, metadata, status, ended, errors, total, completed, failed, created) VALUES (?, ?, ?, ?, ?, ?, "
      "?, ?, ?, ?, ?, 0, "
      "'[]', 0, 0, 0, ?)",
      {batch.id, tenant, int64_t{priority}, batch.endpoint, batch.input_file, batch.output_file, batch.error_file,
       batch.window, sql_value(batch.output_lifetime), batch.metadata, batch.status, batch.created});
  return batch;
}

std::optional<Batch> BatchTable::find(const std::string& tenant, const std::string& id) {
  const auto lock = files_.lock();
  return find_batch(files_.database(), tenant, id);
}

std::optional<ListedRows<Batch>> BatchTable::list(const std::string& tenant, const ListedPart& part) {
  const auto lock = files_.lock();
  int64_t after = INT64_MAX;
  if (part.after) {
    auto row = files_.database().query("SELECT number FROM batches WHERE id = ? AND tenant = ?", {*part.after, tenant});
    if (!row.next()) return std::nullopt;
    after = row.integer(0);
  }
  auto rows = files_.database().query(
      fmt::format("SELECT {} FROM batches WHERE tenant = ? AND number < ? ORDER BY number DESC LIMIT ?", kBatchColumns),
      {tenant, after, int64_t{part.limit} + 1});
  ListedRows<Batch> listed;
  while (rows.next()) listed.rows.push_back(batch_row(rows));
  listed.more = std::cmp_greater(listed.rows.size(), part.limit);
  if (listed.more) listed.rows.pop_back();
  return listed;
}

std::optional<Batch> BatchTable::cancel(const std::string& tenant, const std::string& id) {
  const auto lock = files_.lock();
  std::optional<Batch> batch = find_batch(files_.database(), tenant, id);
  if (!batch) return std::nullopt;
  if (batch->ended)
    throw ApiError(409, fmt::format("the batch has ended: it is {}", batch->status), "invalid_request_error", {},
                   "batch_ended");
  if (batch->status == batch_status::kCancelling) return batch;
  batch->status = batch_status::kCancelling;
  batch->cancelling = unix_seconds();
  files_.database().run("UPDATE batches SET status = ?, cancelling = ? WHERE id = ?",
                        {batch->status, *batch->cancelling, id});
  return batch;
}

std::vector<Batch> BatchTable::next(size_t most, int64_t now) {
  const auto lock = files_.lock();
  std::vector<Batch> found;
  auto oldest = files_.database().query(
      fmt::format(
          "SELECT {} FROM batches WHERE number IN (SELECT MIN(number) FROM batches WHERE ended = 0 GROUP BY tenant) "
          "ORDER BY number LIMIT ?",
          kBatchColumns),
      {static_cast<int64_t>(most)});
  while (oldest.next()) found.push_back(batch_row(oldest));
  auto ending = files_.database().query(
      fmt::format(
          "SELECT {} FROM batches WHERE ended = 0 AND (status = 'cancelling' OR created + window <= ?) ORDER BY "
          "number LIMIT ?",
          kBatchColumns),
      {now, static_cast<int64_t>(most)});
  while (ending.next()) {
    Batch batch = batch_row(ending);
    const auto same = [&](const Batch& other) { return other.id == batch.id; };
    if (std::ranges::none_of(found, same)) found.push_back(std::move(batch));
  }
  return found;
}

bool BatchTable::move(Batch& batch, std::string_view from, std::string_view to, std::string_view column, int64_t now) {
  const auto lock = files_.lock();
  const int changed = files_.database().run(
      fmt::format(
          "UPDATE batches SET status = ?, {} = ?, total = ?, completed = ?, failed = ? WHERE id = ? AND status = ?",
          column),
      {to, now, batch.total, batch.completed, batch.failed, batch.id, from});
  if (changed > 0) batch.status = to;
  return changed > 0;
}

bool BatchTable::begin(Batch& batch, int64_t now) {
  if (!move(batch, batch_status::kValidating, batch_status::kInProgress, "in_progress", now)) return false;
  batch.in_progress = now;
  return true;
}

bool BatchTable::finalize(Batch& batch, int64_t now) {
  if (batch.status == batch_status::kFinalizing) return true;  // the server was stopped there
  if (!move(batch, batch_status::kInProgress, batch_status::kFinalizing, "finalizing", now)) return false;
  batch.finalizing = now;
  return true;
}

void BatchTable::save_counts(const Batch& batch) {
  const auto lock = files_.lock();
  files_.database().run("UPDATE batches SET total = ?, completed = ?, failed = ? WHERE id = ?",
                        {batch.total, batch.completed, batch.failed, batch.id});
}

BatchTable::Tally BatchTable::tally() {
  const auto lock = files_.lock();
  Tally tally;
  auto rows = files_.database().query(
      "SELECT status, COUNT(*), SUM(total - completed - failed) FROM batches WHERE ended = 0 GROUP BY status", {});
  while (rows.next()) {
    const auto state = std::ranges::find(kOpenBatchStates, rows.text(0));
    if (state == kOpenBatchStates.end()) continue;
    tally.open[static_cast<size_t>(state - kOpenBatchStates.begin())] = rows.integer(1);
    if (rows.text(0) != batch_status::kValidating) tally.unanswered += rows.integer(2);
  }
  return tally;
}

void BatchTable::end(Batch& batch, std::string_view status, const std::vector<StoredFile>& results, int64_t now) {
  const auto has = [&](const std::string& id) {
    return std::ranges::any_of(results, [&](const StoredFile& file) { return file.id == id; });
  };
  batch.status = status;
  batch.ended = true;
  batch.finished = now;
  if (!has(batch.output_file)) batch.output_file.clear();
  if (!has(batch.error_file)) batch.error_file.clear();
  const auto lock = files_.lock();
  Database::Transaction transaction(files_.database());
  files_.database().run(
      "UPDATE batches SET status = ?, ended = 1, finished = ?, output_file = ?, error_file = ?, errors = ?, total = ?, "
      "completed = ?, failed = ? WHERE id = ?",
      {batch.status, now, batch.output_file, batch.error_file, batch.errors, batch.total, batch.completed, batch.failed,
       batch.id});
  for (const StoredFile& file : results) files_.insert(file);
  transaction.commit();
  for (const StoredFile& file : results) files_.count(file);
}

}  // namespace quire
