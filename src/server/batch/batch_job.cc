#include "server/batch/batch_job.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "base/error.h"
#include "server/api/answer/answer.h"
#include "server/api/service.h"

namespace quire {
namespace {

constexpr size_t kMostErrors = 100;  // that a batch tells; its other wrong lines are counted

std::string_view without_mark(std::string_view text, int number) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (number == 1 && text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  if (text.ends_with('\r')) text.remove_suffix(1);
  return text;
}

}  // namespace

BatchJob::BatchJob(FileStore& files, Batch batch, const BatchLimits& limits)
    : files_(files), batch_(std::move(batch)), limits_(limits) {
  reopen();
}

void BatchJob::reopen() {
  input_ = std::make_unique<LineFile>(files_.content(batch_.input_file), "the input " + batch_.input_file);
  is_read_ = false;
}

bool BatchJob::check_lines(size_t lines) {
  for (; lines > 0; --lines) {
    const LineFile::Line read = input_->next_or_skip(text_, limits_.max_line_bytes);
    if (read != LineFile::Line::kEnd) {
      check_line(read);
      continue;
    }
    if (batch_.total == 0 && wrong_ == 0) note_wrong({"empty_file", "the file has no request", {}, {}});
    if (wrong_ > kMostErrors)
      errors_.push_back({{"code", "more_errors"},
                         {"line", nullptr},
                         {"message", fmt::format("{} more lines are wrong", wrong_ - kMostErrors)},
                         {"param", nullptr}});
    batch_.errors = dump(errors_);
    custom_ids_ = {};
    return true;
  }
  return false;
}

void BatchJob::check_line(LineFile::Line read) {
  const std::string_view text = without_mark(text_, input_->number());
  if (is_blank(text)) return;
  ++batch_.total;
  try {
    if (read == LineFile::Line::kTooLong)
      throw BatchLineError{"line_too_long",
                           fmt::format("the line has more than {} bytes (--max-body-size)", limits_.max_line_bytes),
                           {},
                           {}};
    if (std::cmp_equal(batch_.total, limits_.max_requests + 1))
      throw BatchLineError{
          "too_many_requests",
          fmt::format("the file has more than {} requests (--max-batch-requests); split it", limits_.max_requests),
          {},
          {}};
    if (std::cmp_greater(batch_.total, limits_.max_requests)) return;
    const BatchLine line = parse_batch_line(text);
    if (line.api->path != batch_.endpoint)
      throw BatchLineError{
          "mismatched_endpoint",
          fmt::format("the url is {}, but the batch's endpoint is {}", line.api->path, batch_.endpoint), "url",
          line.custom_id};
    if (!custom_ids_.insert(result_id(line.custom_id)).second)
      throw BatchLineError{"duplicate_custom_id",
                           fmt::format("an earlier line has the custom_id {}, too", describe(Json(line.custom_id))),
                           "custom_id", line.custom_id};
  } catch (const BatchLineError& error) {
    note_wrong(error);
  }
}

void BatchJob::note_wrong(const BatchLineError& error) {
  if (++wrong_ > kMostErrors) return;
  errors_.push_back({{"code", error.code},
                     {"line", input_->number() > 0 ? Json(input_->number()) : Json()},
                     {"message", error.message},
                     {"param", error.param.empty() ? Json() : Json(error.param)}});
}

void BatchJob::open_results() {
  answers_ = std::make_unique<ResultFile>(files_.content(batch_.output_file));
  failures_ = std::make_unique<ResultFile>(files_.content(batch_.error_file));
  reopen();
  count();
}

void BatchJob::count() {
  batch_.completed = static_cast<int64_t>(answers_->answered());
  batch_.failed = static_cast<int64_t>(failures_->failed());
}

std::optional<BatchJob::Next> BatchJob::next() {
  std::optional<Next> found = read_next();
  is_read_ = !found;
  return found;
}

std::optional<BatchJob::Next> BatchJob::read_next() {
  while (input_->next_or_skip(text_, limits_.max_line_bytes) == LineFile::Line::kWhole) {
    const std::string_view text = without_mark(text_, input_->number());
    if (is_blank(text)) continue;
    const ResultId id = result_id(text);
    if (answers_->has(id) || failures_->has(id)) continue;
    try {
      return Next{id, parse_batch_line(text)};
    } catch (const BatchLineError& error) {
      throw no_resource("the input {} has changed: line {}: {}", batch_.input_file, input_->number(), error.message);
    }
  }
  return std::nullopt;
}

void BatchJob::add(const ResultId& id, const std::string& custom_id, const CallResult& result) {
  (result.status == 200 ? answers_ : failures_)->add(id, result_line(id, custom_id, result));
  count();
}

void BatchJob::end_rest(std::string_view code, std::string_view message) {
  reopen();
  while (const std::optional<Next> rest = next())
    failures_->add(rest->id, error_line(rest->id, rest->line.custom_id, code, message));
  count();
}

std::vector<StoredFile> BatchJob::finish() {
  std::vector<StoredFile> results;
  if (!answers_) return results;
  const int64_t now = unix_seconds();
  for (const auto& [file, id, what] :
       {std::tuple(&answers_, &batch_.output_file, "output"), std::tuple(&failures_, &batch_.error_file, "error")}) {
    (*file)->sync();
    std::error_code ignored;
    if ((*file)->bytes() == 0) {
      std::filesystem::remove((*file)->path(), ignored);
      continue;
    }
    StoredFile result{.id = *id,
                      .tenant = batch_.tenant,
                      .filename = fmt::format("{}_{}.jsonl", batch_.id, what),
                      .purpose = "batch_output",
                      .bytes = static_cast<int64_t>((*file)->bytes()),
                      .created = now,
                      .expires = std::nullopt};
    if (batch_.output_lifetime) result.expires = now + *batch_.output_lifetime;
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace quire
