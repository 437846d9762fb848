// Which models are loaded: on request, within a memory that holds two of three, and not for ever.
#include "server/api/model_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "unit/server/running_server.h"

namespace quire {
namespace {

using namespace std::chrono_literals;

class PoolFixture : public ::testing::Test {
 protected:
  static constexpr int kRoom = 2;

  PooledModel model(char name) {
    return {.load =
                [this, name] {
                  const std::lock_guard lock(mutex_);
                  if (on_load_) on_load_(name);
                  if (loaded_.size() >= kRoom) throw no_resource("{} does not fit", name);
                  loaded_ += name;
                  log_ += name;
                },
            .unload =
                [this, name] {
                  const std::lock_guard lock(mutex_);
                  std::erase(loaded_, name);
                  log_ += static_cast<char>(name + ('a' - 'A'));
                }};
  }
  std::vector<PooledModel> three() { return {model('A'), model('B'), model('C')}; }

  // Waits for the model. Throws what loading it threw.
  static ModelPool::Lease acquire(ModelPool& pool, size_t model) {
    std::promise<ModelPool::Lease> settled;
    pool.acquire(model, [&](ModelPool::Lease lease, const std::exception_ptr& failure) {
      if (failure) {
        settled.set_exception(failure);
      } else {
        settled.set_value(std::move(lease));
      }
    });
    return settled.get_future().get();
  }
  std::string log() {
    const std::lock_guard lock(mutex_);
    return log_;
  }

  std::function<void(char)> on_load_;

 private:
  std::mutex mutex_;
  std::string loaded_, log_;  // log: "A" loaded, "a" unloaded
};

TEST_F(PoolFixture, LoadsOnRequestOnly) {
  ModelPool pool(three());
  EXPECT_FALSE(pool.try_acquire(1));
  EXPECT_EQ(pool.state(1), ModelState::kUnloaded);
  EXPECT_TRUE(acquire(pool, 1));
  EXPECT_TRUE(pool.try_acquire(1));
  EXPECT_EQ(pool.state(1), ModelState::kLoaded);
  EXPECT_EQ(log(), "B");
}

TEST_F(PoolFixture, UnloadsTheLeastRecentlyUsed) {
  ModelPool pool(three());
  acquire(pool, 0);
  acquire(pool, 1);
  acquire(pool, 0);
  acquire(pool, 2);
  EXPECT_EQ(log(), "ABbC");
}

TEST_F(PoolFixture, LeasesMayEndWithTheirCallbacks) {
  ModelPool pool(three());
  std::promise<void> settled;
  pool.acquire(0, [held = std::make_shared<ModelPool::Lease>(), &settled](ModelPool::Lease lease, const auto&) {
    *held = std::move(lease);
    settled.set_value();
  });
  settled.get_future().get();
  acquire(pool, 1);
  acquire(pool, 2);
  EXPECT_EQ(log(), "ABaC");
}

TEST_F(PoolFixture, LookingIsNoUse) {
  ModelPool pool(three());
  acquire(pool, 0);
  acquire(pool, 1);
  pool.peek(0);
  acquire(pool, 2);
  EXPECT_EQ(log(), "ABaC");
}

TEST_F(PoolFixture, KeepsModelsInUseAndPinnedOnes) {
  auto models = three();
  models[0].pinned = true;
  ModelPool pool(std::move(models));
  acquire(pool, 0);
  ModelPool::Lease used = acquire(pool, 1);
  ModelPool::Lease third;
  std::promise<void> settled;
  pool.acquire(2, [&](ModelPool::Lease lease, const std::exception_ptr&) {
    third = std::move(lease);
    settled.set_value();
  });
  EXPECT_TRUE(eventually([&] { return pool.state(1) == ModelState::kUnloading; }));
  EXPECT_FALSE(pool.try_acquire(1)) << "it is about to leave";
  EXPECT_EQ(log(), "AB");
  used = {};
  settled.get_future().get();
  EXPECT_TRUE(third);
  EXPECT_EQ(log(), "ABbC");
}

TEST_F(PoolFixture, RefusesWhatDoesNotFitNextToPinnedModels) {
  auto models = three();
  models[0].pinned = models[1].pinned = true;
  ModelPool pool(std::move(models));
  acquire(pool, 0);
  acquire(pool, 1);
  EXPECT_THROW(acquire(pool, 2), Error);
  EXPECT_EQ(pool.state(2), ModelState::kUnloaded);
  pool.unload(0);
  EXPECT_TRUE(eventually([&] { return pool.state(0) == ModelState::kUnloaded; }));
  EXPECT_TRUE(acquire(pool, 2));
}

TEST_F(PoolFixture, UnloadsIdleModels) {
  auto models = three();
  models[0].keep_alive = 0ms;
  models[1].keep_alive = 1h;
  ModelPool pool(std::move(models));
  ModelPool::Lease used = acquire(pool, 0);
  acquire(pool, 1);
  EXPECT_EQ(pool.state(0), ModelState::kLoaded) << "in use";
  used = {};
  EXPECT_TRUE(eventually([&] { return pool.state(0) == ModelState::kUnloaded; }));
  EXPECT_EQ(pool.state(1), ModelState::kLoaded);
  pool.set_keep_alive(1, 0ms);
  EXPECT_TRUE(eventually([&] { return pool.state(1) == ModelState::kUnloaded; }));
}

TEST_F(PoolFixture, OtherFailuresUnloadNobody) {
  ModelPool pool(three());
  acquire(pool, 0);
  acquire(pool, 1);
  on_load_ = [](char) { throw std::runtime_error("broken"); };
  EXPECT_THROW(acquire(pool, 2), std::runtime_error);
  on_load_ = [](char) { throw invalid("broken"); };
  EXPECT_THROW(acquire(pool, 2), Error);
  EXPECT_EQ(log(), "AB");
}

TEST_F(PoolFixture, WhoWaitsLearnsThatThePoolEnds) {
  std::promise<void> go_on;
  on_load_ = [&](char) { go_on.get_future().get(); };
  std::atomic<int> refused{0}, served{0};
  {
    ModelPool pool(three());
    for (size_t model = 0; model < 3; ++model) {
      pool.acquire(model, [&](const ModelPool::Lease& lease, const std::exception_ptr& failure) {
        ++(lease ? served : refused);
        EXPECT_EQ(static_cast<bool>(lease), failure == nullptr);
      });
    }
    EXPECT_TRUE(eventually([&] { return pool.state(0) == ModelState::kLoading; }));
    std::thread later([&] { go_on.set_value(); });
    pool.stop();
    later.join();
    pool.acquire(1, [&](const ModelPool::Lease&, const std::exception_ptr& failure) { EXPECT_TRUE(failure); });
  }
  EXPECT_EQ(served, 1);
  EXPECT_EQ(refused, 2);
}

// Whatever is asked for in whatever order, every request gets its model, and a leased model is never unloaded.
TEST_F(PoolFixture, ServesAllUnderRandomLoad) {
  std::array<std::atomic<int>, 5> users{};
  std::vector<PooledModel> models;
  for (int i = 0; i < 5; ++i) {
    models.push_back(model(static_cast<char>('A' + i)));
    models.back().unload = [&users, i, unload = models.back().unload] {
      EXPECT_EQ(users[static_cast<size_t>(i)], 0);
      unload();
    };
    if (i == 4) models.back().keep_alive = 0ms;
  }
  ModelPool pool(std::move(models));
  std::atomic<int> served{0};
  std::vector<std::thread> clients;
  for (unsigned client = 0; client < 6; ++client) {
    clients.emplace_back([&, client] {
      std::mt19937 random(client);
      for (int i = 0; i < 200; ++i) {
        const size_t wanted = random() % 5;
        if (random() % 16 == 0) pool.unload(random() % 5);
        ModelPool::Lease lease = pool.try_acquire(wanted);
        if (!lease) lease = acquire(pool, wanted);
        ++users[wanted];
        ++served;
        std::this_thread::yield();
        --users[wanted];
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(served, 1200);
}

}  // namespace
}  // namespace quire
