#include "base/files/file_lease.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "base/signals.h"

namespace quire {

std::unique_ptr<FileLease> FileLease::take(int fd, std::function<void()> before_change) {
  std::unique_ptr<FileLease> lease(new FileLease(fd, std::move(before_change)));
  lease->state_.wait(0);
  return lease->state_ > 0 ? std::move(lease) : nullptr;
}

FileLease::FileLease(int fd, std::function<void()> before_change) : fd_(fd), before_change_(std::move(before_change)) {
  const BlockSignals inherited;
  watcher_ = std::thread([this] { watch(); });
}

FileLease::~FileLease() {
  stopping_ = true;
  pthread_kill(watcher_.native_handle(), SIGIO);
  watcher_.join();
}

// The system tells of a coming change by SIGIO. It goes to this thread, which blocks it and waits for it, so that no
// handler of the process is concerned.
void FileLease::watch() {
  const f_owner_ex owner{F_OWNER_TID, ::gettid()};
  const bool held = ::fcntl(fd_, F_SETOWN_EX, &owner) == 0 && ::fcntl(fd_, F_SETLEASE, F_RDLCK) == 0;
  state_ = held ? 1 : -1;
  state_.notify_one();
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGIO);
  for (bool changed = false; !stopping_;) {
    int signal = 0;
    if (::sigwait(&wanted, &signal) != 0 || stopping_ || !held || changed) continue;
    if (::fcntl(fd_, F_GETLEASE) == F_RDLCK) continue;  // no change is coming
    before_change_();
    ::fcntl(fd_, F_SETLEASE, F_UNLCK);
    changed = true;
  }
  if (held) ::fcntl(fd_, F_SETLEASE, F_UNLCK);
}

}  // namespace quire
