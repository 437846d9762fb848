// Threads of a kernel's block as fibers: functions on stacks of their own, of which one at a time runs, on the host's thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

namespace quire::cuda::emulated {

class FiberPool {
 public:
  // body(i) is what fiber i does; it must not throw.
  explicit FiberPool(std::function<void(int)> body);
  ~FiberPool();  // no body is running
  FiberPool(const FiberPool&) = delete;
  FiberPool& operator=(const FiberPool&) = delete;

  // Makes fibers 0 .. count - 1, where they are missing.
  void reserve(int count);
  // Starts body(i), or continues it where it called suspend(); returns when a fiber suspends with no other to run, or ends.
  void resume(int i);
  // Called by body(i): runs fiber `next`, or if it is kNone what called resume().
  static constexpr int kNone = -1;
  void suspend(int i, int next);

 private:
  struct Context;
  struct Fiber;
  Fiber& fiber(int i) { return *fibers_[static_cast<size_t>(i)]; }
  void switch_to(Context& from, Context& to);

  std::function<void(int)> body_;
  std::unique_ptr<Context> host_;  // what calls resume()
  std::vector<std::unique_ptr<Fiber>> fibers_;
  Context* last_ = nullptr;  // that switched to another
};

}  // namespace quire::cuda::emulated
