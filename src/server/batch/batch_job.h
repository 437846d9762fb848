// A batch that is being worked on: the lines of its input, and the files of its results.
#pragma once

#include <boost/unordered/unordered_flat_set.hpp>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/line_file.h"
#include "server/batch/batch_line.h"
#include "server/batch/batch_table.h"
#include "server/batch/result_file.h"

namespace quire {

struct BatchLimits {
  size_t max_line_bytes = size_t{8} << 20;
  size_t max_requests = 50'000;  // of a batch; each takes about 64 bytes of memory while the batch is worked on
};

// For one thread. Throws Error (kResource) where the disk is full or fails: a job that is made anew goes on from there.
class BatchJob {
 public:
  // batch: has not ended. files must outlive it. Throws Error (kNotFound) if the input is gone.
  BatchJob(FileStore& files, Batch batch, const BatchLimits& limits);

  const Batch& batch() const { return batch_; }
  Batch& batch() { return batch_; }

  // Reads so many lines of an input that has not been checked. true: it was read to its end, and batch().total is set; if it
  // is wrong, batch().errors says why.
  bool check_lines(size_t lines);
  bool is_wrong() const { return !errors_.empty(); }
  // For an input that has been checked: opens the files of results. From then on batch() counts them.
  void open_results();

  struct Next {
    ResultId id;
    BatchLine line;
  };
  // The next request that has no result; nullopt: there are no more.
  std::optional<Next> next();
  bool is_read() const { return is_read_; }  // next() has returned nullopt
  void add(const ResultId& id, const std::string& custom_id, const CallResult& result);
  // Gives all requests that have no result an error instead.
  void end_rest(std::string_view code, std::string_view message);

  // Writes the results to the disk. Returns those files that have any; the others are removed.
  std::vector<StoredFile> finish();

 private:
  std::optional<Next> read_next();
  void check_line(LineFile::Line read);
  void reopen();
  void note_wrong(const BatchLineError& error);
  void count();

  FileStore& files_;
  Batch batch_;
  const BatchLimits limits_;
  std::unique_ptr<LineFile> input_;
  std::string text_;                                                     // of the line that was read last
  boost::unordered_flat_set<ResultId, std::hash<ResultId>> custom_ids_;  // while the input is checked
  Json errors_ = Json::array();
  size_t wrong_ = 0;  // lines
  std::unique_ptr<ResultFile> answers_, failures_;
  bool is_read_ = false;
};

}  // namespace quire
