#include "hub/transfer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <list>

#include "base/error.h"
#include "base/text/quote.h"
#include "hub/http_url.h"
#include "hub/range_journal.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

// At 50 MB/s and four connections a piece takes a second: long enough for TCP to find the rate, short enough that the last
// pieces end together.
constexpr uint64_t kPiece = uint64_t{16} << 20;
constexpr auto kSaveEvery = std::chrono::seconds(1);  // what a killed process loses at most

// Why a connection was ended by us.
enum class Stop : uint8_t { kNone, kNoRanges, kWrongRange, kWriteError };

class RangedDownload {
 public:
  RangedDownload(const HttpAccess& access, const RemoteFile& file, const PartialFile& partial)
      : access_(access),
        file_(file),
        partial_(partial),
        journal_(RangeJournal::load(partial.journal, partial.content, file.etag, file.size, kPiece)),
        multi_(curl_multi_init(), curl_multi_cleanup) {
    fd_ = ::open(partial.content.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd_ < 0) throw no_resource("{} cannot be created: {}", partial.content.string(), std::strerror(errno));
  }

  ~RangedDownload() {
    running_.clear();  // before the multi handle
    try {
      if (!is_complete()) journal_.save(partial_.journal);
    } catch (const Error&) {
      // Nothing to do: an older journal, or none, means that more is downloaded again.
    }
    ::close(fd_);
  }

  void run(int connections, const std::function<void(uint64_t)>& done, const RefusalHandler& refuse) {
    reserve();
    auto saved = Clock::now();
    while (!is_complete()) {
      access_.check();
      done(journal_.total());
      start(answered_ && !no_ranges_ ? connections : 1);
      int running = 0, left = 0;
      curl_multi_perform(multi_.get(), &running);
      while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
        if (message->msg == CURLMSG_DONE) finish(message->easy_handle, message->data.result, refuse);
      }
      if (Clock::now() - saved >= kSaveEvery) {
        journal_.save(partial_.journal);
        saved = Clock::now();
      }
      curl_multi_poll(multi_.get(), nullptr, 0, 100, nullptr);
    }
    done(journal_.total());
    // Written to the disk before the file gets its name: after a power failure, a name means a whole file.
    if (::fsync(fd_) != 0) throw write_error(errno);
  }

 private:
  struct Connection {
    Connection(RangedDownload& download, size_t which, const std::string& url)
        : owner(download), piece(which), handle(download.access_, url, reply) {}
    ~Connection() { curl_multi_remove_handle(owner.multi_.get(), handle.get()); }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    RangedDownload& owner;
    size_t piece;
    HttpReply reply;
    HttpHandle handle;
    Stop stop = Stop::kNone;
    bool checked = false;  // the answer's range is the one asked for
    int error = 0;
  };

  bool is_complete() const { return journal_.total() == file_.size; }

  Error write_error(int reason) const {
    return no_resource("{} cannot be written: {}; what is there stays, and the same command continues it",
                       partial_.content.string(), std::strerror(reason));
  }

  // Takes the space now, so that a full disk shows before the download and not near its end.
  void reserve() const {
    if (::fallocate(fd_, 0, 0, static_cast<off_t>(file_.size)) == 0) return;
    if (errno == ENOSPC || errno == EDQUOT) throw write_error(errno);
    // A file system that cannot reserve.
    if (::ftruncate(fd_, static_cast<off_t>(file_.size)) != 0) throw write_error(errno);
  }

  // Gives idle connections the next pieces.
  void start(int connections) {
    if (Clock::now() < not_before_) return;
    for (size_t piece = 0; piece < journal_.pieces() && std::ssize(running_) < connections; ++piece) {
      const bool is_running = std::ranges::any_of(running_, [&](const Connection& c) { return c.piece == piece; });
      if (is_running || journal_.is_complete(piece)) continue;
      if (no_ranges_) journal_.forget(piece);
      Connection& connection = running_.emplace_back(*this, piece, located_.empty() ? file_.url : located_);
      CURL* const easy = connection.handle.get();
      connection.handle.add_header("Accept-Encoding: identity");
      if (!no_ranges_) {
        const uint64_t begin = journal_.begin(piece);
        const std::string range = fmt::format("{}-{}", begin + journal_.done(piece), begin + journal_.bytes(piece) - 1);
        curl_easy_setopt(easy, CURLOPT_RANGE, range.c_str());
      }
      curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, receive);
      curl_easy_setopt(easy, CURLOPT_WRITEDATA, &connection);
      curl_multi_add_handle(multi_.get(), easy);
    }
  }

  static size_t receive(char* data, size_t size, size_t count, void* to) {
    auto& connection = *static_cast<Connection*>(to);
    return connection.owner.receive_bytes(connection, data, size * count) ? size * count : 0;
  }

  bool receive_bytes(Connection& c, const char* data, size_t bytes) {
    if (!c.checked) {
      curl_easy_getinfo(c.handle.get(), CURLINFO_RESPONSE_CODE, &c.reply.status);
      if (c.reply.status != 200 && c.reply.status != 206) return true;  // the text of an error
      c.stop = check_answer(c);
      if (c.stop != Stop::kNone) return false;
      c.checked = true;
      answered_ = true;
    }
    if (bytes > journal_.bytes(c.piece) - journal_.done(c.piece)) {
      c.stop = Stop::kWrongRange;
      return false;
    }
    while (bytes > 0) {
      const auto at = static_cast<off_t>(journal_.begin(c.piece) + journal_.done(c.piece));
      const ssize_t written = ::pwrite(fd_, data, bytes, at);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) {
        c.error = written < 0 ? errno : ENOSPC;
        c.stop = Stop::kWriteError;
        return false;
      }
      journal_.add(c.piece, static_cast<uint64_t>(written));
      data += written;
      bytes -= static_cast<size_t>(written);
    }
    if (!no_ranges_) {  // otherwise the next try begins at the first byte again, so these bytes are no progress
      retries_.reset();
      expired_ = 0;
    }
    return true;
  }

  Stop check_answer(const Connection& c) const {
    if (c.reply.status == 200)  // the whole file
      return no_ranges_ || (file_.size <= kPiece && journal_.done(c.piece) == 0) ? Stop::kNone : Stop::kNoRanges;
    const auto range = read_content_range(c.reply.header("content-range"));
    const uint64_t wanted = journal_.begin(c.piece) + journal_.done(c.piece);
    return range && range->first == wanted && range->second == file_.size ? Stop::kNone : Stop::kWrongRange;
  }

  void finish(CURL* easy, CURLcode code, const RefusalHandler& refuse) {
    const auto at = std::ranges::find_if(running_, [&](Connection& c) { return c.handle.get() == easy; });
    assert(at != running_.end());
    std::list<Connection> ended;  // out of the way of start()
    ended.splice(ended.begin(), running_, at);
    Connection& c = ended.front();
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &c.reply.status);
    switch (c.stop) {
      case Stop::kNone:
        break;
      case Stop::kNoRanges:
        // One connection for all, from the beginning. The loop of run() starts it.
        no_ranges_ = true;
        running_.clear();
        journal_ = RangeJournal(file_.etag, file_.size, std::max<uint64_t>(file_.size, 1));
        return;
      case Stop::kWrongRange:
        throw invalid("{} sends other bytes than were asked for; the file may have changed, so try again",
                      shown_url(c.reply.url));
      case Stop::kWriteError:
        throw write_error(c.error);
    }
    if (code == CURLE_OK && c.reply.is_redirect()) {
      if (++redirects_in_a_row_ > 10) throw invalid("{} redirects more than 10 times", shown_url(file_.url));
      located_ = redirected_url(c.reply.url, c.reply.header("location"), access_.allow_http);
      return;
    }
    redirects_in_a_row_ = 0;
    if (journal_.is_complete(c.piece)) return;
    const long status = c.reply.status;
    if (code == CURLE_OK && status >= 400 && !may_pass(status) && c.reply.url != file_.url && expired_ < 3) {
      // A signed URL expires; the first URL gives a new one. Another connection may have asked for it already.
      if (c.reply.url == located_) {
        located_.clear();
        answered_ = false;
        ++expired_;
      }
      return;
    }
    if (code == CURLE_OK && status >= 300 && !may_pass(status)) {
      refuse(c.reply);
      throw no_resource("{}", describe_failure(code, c.reply));
    }
    if (code != CURLE_OK && !may_pass(code)) throw no_resource("{}", describe_failure(code, c.reply));
    // Cut, although the answer was complete for curl, or a passing error.
    const bool is_short = code == CURLE_OK && status < 300;
    const std::string what =
        is_short ? "the connection to " + shown_url(c.reply.url) + " was cut" : describe_failure(code, c.reply);
    if (Clock::now() < not_before_) return;  // connections that fail together count once
    const auto delay = retries_.after_failure(c.reply);
    if (!delay)
      throw no_resource("{}; gave up after several tries. What is there stays, and the same command continues it",
                        what);
    not_before_ = Clock::now() + *delay;
    access_.note(fmt::format("{}; trying again in {:.1f} s", what, static_cast<double>(delay->count()) / 1e3));
  }

  const HttpAccess& access_;
  const RemoteFile& file_;
  const PartialFile& partial_;
  RangeJournal journal_;
  std::unique_ptr<CURLM, CURLMcode (*)(CURLM*)> multi_;
  int fd_ = -1;
  std::list<Connection> running_;
  std::string located_;    // where the file's URL redirects to
  bool answered_ = false;  // with bytes: it is known where the file is and that it comes in ranges
  bool no_ranges_ = false;
  RetryDelay retries_;
  Clock::time_point not_before_{};
  int redirects_in_a_row_ = 0;
  int expired_ = 0;
};

}  // namespace

void PartialFile::remove() const {
  std::error_code ignored;
  std::filesystem::remove(content, ignored);
  std::filesystem::remove(journal, ignored);
  std::filesystem::remove(journal.string() + ".tmp", ignored);  // of a process that was killed as it saved the journal
}

uint64_t PartialFile::allocated() const {
  struct stat info {};
  return ::stat(content.c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_blocks) * 512 : 0;
}

void download_ranges(const HttpAccess& access, const RemoteFile& file, const PartialFile& partial, int connections,
                     const std::function<void(uint64_t)>& done, const RefusalHandler& refuse) {
  assert(connections >= 1);
  RangedDownload(access, file, partial).run(connections, done, refuse);
}

}  // namespace quire
