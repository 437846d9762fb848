// The engine and its answers as Python holds them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <unistd.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "quire/answer_queue.h"
#include "quire/engine.h"

namespace quire::python {

namespace nb = nanobind;

// Keeps a value of the process that made it. After fork() the child has the memory, but not the engine's threads, so
// the child may neither use the value nor destroy it, which would wait for those threads.
template <class T>
class OfThisProcess {
 public:
  explicit OfThisProcess(std::shared_ptr<T> value) : value_(std::make_unique<std::shared_ptr<T>>(std::move(value))) {}
  OfThisProcess(const OfThisProcess&) = delete;
  OfThisProcess& operator=(const OfThisProcess&) = delete;
  ~OfThisProcess() {
    if (::getpid() != owner_) static_cast<void>(value_.release());  // never destroyed
  }

  // Raises RuntimeError in a forked child, or if it was closed.
  std::shared_ptr<T> get() const {
    check_process();
    if (closed()) throw std::runtime_error("the engine is closed");
    return *value_;
  }
  std::shared_ptr<T> release() {
    check_process();
    return std::exchange(*value_, nullptr);
  }
  bool closed() const { return !*value_; }

 private:
  void check_process() const {
    if (::getpid() == owner_) return;
    throw std::runtime_error(
        "this engine belongs to the parent process; a forked child cannot use it. Load the model in the child, or let "
        "multiprocessing start processes by \"spawn\"");
  }

  std::unique_ptr<std::shared_ptr<T>> value_;
  pid_t owner_ = ::getpid();
};

// Shared by an engine and its queues. Changed under the GIL.
struct Activity {
  bool closed = false;
  int calls = 0;  // that run without the GIL
};

// Lets other threads run while it lives. Throws, as OfThisProcess::get() does, if the engine is closed. A thread that
// comes back from such a call when the interpreter has ended dies within C++, which aborts the process; so the package
// closes engines before, and waits until there are no calls.
class WithoutGil {
 public:
  explicit WithoutGil(Activity& activity) : counted_(activity) {}

 private:
  struct Counted {
    Activity& activity;
    explicit Counted(Activity& shared) : activity(shared) {
      if (activity.closed) throw std::runtime_error("the engine is closed");
      ++activity.calls;
    }
    ~Counted() { --activity.calls; }
  };
  Counted counted_;  // outlives the release
  nb::gil_scoped_release released_;
};

// An engine, and the queues to cancel when it is closed. Its members are used under the GIL.
struct EngineHandle {
  OfThisProcess<Engine> engine;
  std::shared_ptr<Activity> activity = std::make_shared<Activity>();
  std::vector<std::weak_ptr<AnswerQueue>> queues = {};

  explicit EngineHandle(std::shared_ptr<Engine> loaded) : engine(std::move(loaded)) {}
  // Cancels all requests and ends the engine, or leaves that to its last queue. Calls that wait for answers then throw.
  void close();
};

// A queue, which keeps its engine.
struct QueueHandle {
  OfThisProcess<Engine> engine;
  OfThisProcess<AnswerQueue> queue;
  std::shared_ptr<Activity> activity;

  explicit QueueHandle(EngineHandle& handle);
};

// The prompt of a request: int32, contiguous; copied.
using TokenArray = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Adds the classes to the module.
void bind_engine(nb::module_& module);
void bind_answers(nb::module_& module);

}  // namespace quire::python
