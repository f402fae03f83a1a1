# In the lab: what Linux's nvme driver takes for reads of 4 KiB, in instructions.
#
# With --icount, an instruction takes a nanosecond and one step of the TSC. The clock of the trace is
# the TSC; the kernel's default one corrects itself by its ticks, and shows times that did not pass.
set -e
mount -t tracefs none /sys/kernel/tracing
cd /sys/kernel/tracing
echo x86-tsc > trace_clock
for depth in 1 32; do
    # Each alone: a function that is traced inside of another one would be counted with its tracing.
    for function in nvme_queue_rq nvme_irq nvme_pci_complete_rq; do
        echo nop > current_tracer
        echo $function > set_ftrace_filter
        echo function_graph > current_tracer
        echo 1 > tracing_on
        /lab/outboard-bench reads /dev/nvme0n1 $depth 1600 > /dev/null
        echo 0 > tracing_on
        grep "$function" trace > /tmp/calls
        awk -v depth=$depth -v name=$function '
            { for (i = 1; i <= NF; i++) if ($i == "us") { sum += $(i - 1); n++; of[$(i - 1)]++ } }
            END {
                print "depth", depth, name ":", n, "calls,", sum * 1000 / 1600, "for each read"
                for (time in of) if (of[time] >= 80) print "    " of[time], "calls of", time * 1000
            }' /tmp/calls
    done
done
