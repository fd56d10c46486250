#include "device/memory_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "device/cpu_device.h"
#include "device/memory_summary.h"

namespace lockstep {
namespace {

const observe::MemorySummary::Use& use_of(const observe::MemorySummary& summary, const std::string& name) {
  static const observe::MemorySummary::Use none;
  for (const auto& use : summary.uses)
    if (use.name == name) return use;
  return none;
}

TEST(MemoryLedger, CountsForTheInnermostScope) {
  MemoryLedger ledger("/X:0", 0);
  const MemoryLedger::Use plain = ledger.add(1);
  EXPECT_EQ(plain, MemoryLedger::kTensors);
  {
    const MemoryUseScope outer("ledger test outer");
    ledger.add(10);
    {
      const MemoryUseScope inner("ledger test inner");
      ledger.add(100);
      std::thread([&] { EXPECT_EQ(ledger.add(1000), MemoryLedger::kTensors); }).join();
    }
    ledger.add(10);
  }
  const auto summary = ledger.summary();
  EXPECT_EQ(use_of(summary, "tensors").after, 1001);
  EXPECT_EQ(use_of(summary, "ledger test outer").after, 20);
  EXPECT_EQ(use_of(summary, "ledger test inner").after, 100);
  EXPECT_EQ(summary.after, 1121);
}

TEST(MemoryLedger, KnowsWhoHeldWhatAtThePeak) {
  MemoryLedger ledger("/X:0", 0);
  ledger.add(5);
  ledger.begin_run();
  MemoryLedger::Use big = 0;
  {
    const MemoryUseScope scope("ledger test big");
    big = ledger.add(1000);
  }
  ledger.add(1);
  ledger.remove(big, 1000);
  ledger.add(200);
  const auto summary = ledger.summary();
  EXPECT_EQ(summary.before, 5);
  EXPECT_EQ(summary.peak, 1006);
  EXPECT_EQ(summary.after, 206);
  EXPECT_EQ(use_of(summary, "ledger test big").at_peak, 1000);
  EXPECT_EQ(use_of(summary, "tensors").at_peak, 6);
  EXPECT_EQ(use_of(summary, "tensors").after, 206);
  EXPECT_EQ(summary.uses[0].name, "ledger test big");
}

TEST(MemoryLedger, NamesWhatGrowsAfterItHasSettled) {
  MemoryLedger ledger("/X:0", 0);
  ledger.begin_run();
  ledger.add(100);
  EXPECT_EQ(use_of(ledger.summary(), "tensors").grown, 0);
  ledger.settle();
  ledger.add(7);
  ledger.settle();
  EXPECT_EQ(use_of(ledger.summary(), "tensors").grown, 7);
  ledger.begin_run();
  EXPECT_EQ(use_of(ledger.summary(), "tensors").grown, 0);
}

TEST(MemoryLedger, MovesWhatBecomesSomethingElse) {
  MemoryLedger ledger("/X:0", 0);
  const MemoryLedger::Use use = ledger.add(64);
  const MemoryLedger::Use other = memory_use("ledger test other");
  ledger.move(use, other, 64);
  EXPECT_EQ(use_of(ledger.summary(), "ledger test other").after, 64);
  EXPECT_EQ(use_of(ledger.summary(), "tensors").after, 0);
  ledger.remove(other, 64);
  EXPECT_EQ(ledger.summary().after, 0);
}

TEST(MemoryLedger, KeepsFewSamplesOfAnyLength) {
  MemoryLedger ledger("/X:0", 0);
  ledger.begin_run();
  for (int i = 0; i < 200'000; ++i) ledger.remove(ledger.add(1), 1);
  const auto summary = ledger.summary();
  EXPECT_GE(summary.samples.size(), 2u);
  EXPECT_LE(summary.samples.size(), 257u);
  for (size_t i = 1; i < summary.samples.size(); ++i)
    EXPECT_GE(summary.samples[i].ns, summary.samples[i - 1].ns);
}

TEST(MemoryLedger, BecomesACounterOfTheTrace) {
  MemoryLedger ledger("/X:3", 3);
  observe::start_tracing();
  ledger.add(4096);
  observe::stop_tracing();
  const observe::Trace trace = observe::take_trace();
  ASSERT_EQ(trace.events.size(), 1u);
  EXPECT_EQ(trace.events[0].kind, observe::EventKind::counter);
  EXPECT_STREQ(trace.events[0].name.c_str(), "memory in use on /X:3");
  EXPECT_EQ(trace.events[0].value, 4096);
  EXPECT_EQ(trace.events[0].device, 3);
}

TEST(MemorySummary, HoldsALimitAgainstTheBlocksThatAreHeld) {
  const Device device(std::make_unique<CpuDevice>(97, 1));
  DeviceBackend& backend = backend_of(device);
  backend.ledger().begin_run();
  void* const block = backend.allocate(5000, std::source_location::current());
  const MemoryLedger::Use use = backend.ledger().add(5000);
  EXPECT_EQ(memory_summary(device).peak, 5000) << "as it was asked for";
  backend.set_memory_limit(6000);
  const observe::MemorySummary summary = memory_summary(device);
  EXPECT_EQ(summary.peak, 5120);
  EXPECT_EQ(summary.after, backend.memory_info().current);
  ASSERT_EQ(summary.uses.size(), 2u);
  EXPECT_EQ(summary.uses[1].name, "rounding up");
  EXPECT_EQ(summary.uses[1].at_peak, 120);
  backend.ledger().remove(use, 5000);
  backend.deallocate(block, 5000);
}

}  // namespace
}  // namespace lockstep
