/* SPDX-License-Identifier: MIT */
/* How many processors the process may use, read from made-up trees of files that stand in for /. */
#include "runs.h"
#include "trees.h"
#include "whitebox.h"
#include <sched.h>

/* What the affinity mask allows: no quota gives more. */
static int allowed(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

static int at_most_allowed(int n)
{
    return n < allowed() ? n : allowed();
}

static void expect(int line, int n)
{
    int usable = w_usable_cpus(root);
    if (usable != n)
        check_fail(__FILE__, line, "usable are %d, expected %d", usable, n);
    drop_tree();
}

#define EXPECT_LIMIT(n)   expect(__LINE__, at_most_allowed(n))
#define EXPECT_NO_LIMIT() expect(__LINE__, allowed())

#define V2_MOUNT "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1_MOUNT "32 24 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
#define OTHER_MOUNTS                                          \
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n" \
    "31 23 0:27 / /sys/fs/cgroup/cpuset rw shared:8 - cgroup cgroup rw,cpuset\n"

CASE(without_control_groups_the_affinity_mask_counts)
{
    new_tree();
    EXPECT_NO_LIMIT();
    CHECK(w_usable_cpus("") >= 1 && w_usable_cpus("") <= allowed());
    CHECK(w_usable_cpus("/nowhere/at/all") == allowed());
}

CASE(the_affinity_mask_limits)
{
    cpu_set_t all, one;
    CHECK_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    CHECK_EQ(w_usable_cpus("/nowhere/at/all"), 1);
    CHECK_EQ(sched_setaffinity(0, sizeof all, &all), 0);
}

static void v2(const char *group, const char *mounts)
{
    char line[5000];
    new_tree();
    snprintf(line, sizeof line, "0::%s\n", group);
    put_file("/proc/self/cgroup", line);
    put_file("/proc/self/mountinfo", mounts);
}

CASE(a_quota_of_version_two_is_rounded_up)
{
    static const struct {
        const char *max;
        int cpus; /* 0: no limit */
    } quotas[] = {
        {"100000 100000\n", 1}, {"50000 100000\n", 1},  {"1000 100000\n", 1},     {"100001 100000\n", 2},
        {"150000 100000\n", 2}, {"200000 100000\n", 2}, {"max 100000\n", 0},      {"max\n", 0},
        {"20000 10000\n", 2},   {"5000 10000", 1},      {"1000000 100000\n", 10},
    };
    for (size_t i = 0; i < sizeof quotas / sizeof quotas[0]; i++) {
        v2("/app", OTHER_MOUNTS V2_MOUNT);
        put_file("/sys/fs/cgroup/app/cpu.max", quotas[i].max);
        if (quotas[i].cpus == 0)
            EXPECT_NO_LIMIT();
        else
            EXPECT_LIMIT(quotas[i].cpus);
    }
}

CASE(the_least_of_all_ancestors_counts)
{
    static const char *const folders[] = {"/sys/fs/cgroup/a/b/c/cpu.max", "/sys/fs/cgroup/a/b/cpu.max",
                                          "/sys/fs/cgroup/a/cpu.max", "/sys/fs/cgroup/cpu.max"};
    for (int least = 0; least < 4; least++) {
        v2("/a/b/c", V2_MOUNT);
        for (int i = 0; i < 4; i++)
            put_file(folders[i], i == least ? "90000 100000\n" : i % 2 ? "max 100000\n" : "800000 100000\n");
        EXPECT_LIMIT(1);
    }
    v2("/a/b/c", V2_MOUNT); /* a group without a quota of its own, or without the file */
    put_file("/sys/fs/cgroup/a/cpu.max", "100000 100000\n");
    EXPECT_LIMIT(1);
    v2("/a/b", V2_MOUNT); /* what is beside or below us does not count */
    put_file("/sys/fs/cgroup/a/c/cpu.max", "100000 100000\n");
    put_file("/sys/fs/cgroup/a/b/c/cpu.max", "100000 100000\n");
    put_file("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    put_file("/sys/fs/cpu.max", "100000 100000\n");
    EXPECT_NO_LIMIT();
    v2("/", V2_MOUNT);
    put_file("/sys/fs/cgroup/cpu.max", "100000 100000\n");
    EXPECT_LIMIT(1);
}

CASE(a_container_sees_a_part_of_the_tree)
{
    /* Its own name space: the group is "/", the mount shows what we may see. */
    v2("/", OTHER_MOUNTS "30 23 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    put_file("/sys/fs/cgroup/cpu.max", "70000 100000\n");
    EXPECT_LIMIT(1);
    /* The host's: the mount point is our group. */
    v2("/docker/0123", OTHER_MOUNTS "30 23 0:26 /docker/0123 /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    put_file("/sys/fs/cgroup/cpu.max", "70000 100000\n");
    EXPECT_LIMIT(1);
    /* And a group inside it. */
    v2("/docker/0123/inner", OTHER_MOUNTS "30 23 0:26 /docker/0123 /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    put_file("/sys/fs/cgroup/inner/cpu.max", "70000 100000\n");
    put_file("/sys/fs/cgroup/cpu.max", "max 100000\n");
    EXPECT_LIMIT(1);
}

CASE(a_mount_point_may_be_anywhere)
{
    v2("/app", OTHER_MOUNTS "30 23 0:26 / /mnt/groups rw master:3 propagate_from:2 - cgroup2 none rw\n");
    put_file("/mnt/groups/app/cpu.max", "100000 100000\n");
    EXPECT_LIMIT(1);
    v2("/app", OTHER_MOUNTS "30 23 0:26 / /mnt/my\\040groups rw - cgroup2 none rw\n"); /* an escaped space */
    put_file("/mnt/my groups/app/cpu.max", "100000 100000\n");
    EXPECT_LIMIT(1);
    char *mounts = calloc(1, 20000); /* an overlay with more layers than a page can tell */
    strcpy(mounts, "40 23 0:40 / /merged rw - overlay overlay rw,lowerdir=");
    for (int i = 0; i < 1500; i++)
        strcat(mounts, "/layer-1:");
    strcat(mounts, "\n" V2_MOUNT);
    v2("/app", mounts);
    put_file("/sys/fs/cgroup/app/cpu.max", "100000 100000\n");
    free(mounts);
    EXPECT_LIMIT(1);
}

static void v1(const char *groups, const char *mounts)
{
    new_tree();
    put_file("/proc/self/cgroup", groups);
    put_file("/proc/self/mountinfo", mounts);
}

static void v1_quota(const char *folder, const char *quota, const char *period)
{
    char path[300];
    snprintf(path, sizeof path, "/sys/fs/cgroup/cpu,cpuacct%s/cpu.cfs_quota_us", folder);
    put_file(path, quota);
    snprintf(path, sizeof path, "/sys/fs/cgroup/cpu,cpuacct%s/cpu.cfs_period_us", folder);
    put_file(path, period);
}

#define V1_GROUPS "11:cpuset:/elsewhere\n4:cpu,cpuacct:/a/b\n1:name=systemd:/x\n"

CASE(a_quota_of_version_one_counts)
{
    v1(V1_GROUPS, OTHER_MOUNTS V1_MOUNT);
    v1_quota("/a/b", "50000\n", "100000\n");
    EXPECT_LIMIT(1);
    v1(V1_GROUPS, OTHER_MOUNTS V1_MOUNT);
    v1_quota("/a/b", "100001\n", "100000\n");
    EXPECT_LIMIT(2);
    v1(V1_GROUPS, OTHER_MOUNTS V1_MOUNT);
    v1_quota("/a/b", "-1\n", "100000\n");
    EXPECT_NO_LIMIT();
    v1(V1_GROUPS, OTHER_MOUNTS V1_MOUNT); /* an ancestor */
    v1_quota("/a/b", "-1\n", "100000\n");
    v1_quota("/a", "100000\n", "100000\n");
    v1_quota("", "-1\n", "100000\n");
    EXPECT_LIMIT(1);
    v1(V1_GROUPS, OTHER_MOUNTS "32 24 0:28 /a /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n");
    v1_quota("/b", "100000\n", "100000\n"); /* a container */
    EXPECT_LIMIT(1);
    v1("4:cpuacct:/a\n5:cpu:/b\n", OTHER_MOUNTS V1_MOUNT); /* controllers whose names begin alike */
    v1_quota("/a", "100000\n", "100000\n");
    v1_quota("/b", "-1\n", "100000\n");
    EXPECT_NO_LIMIT();
}

CASE(of_both_versions_the_lesser_counts)
{
    for (int least = 1; least <= 2; least++) {
        v1(V1_GROUPS "0::/user\n",
           OTHER_MOUNTS V1_MOUNT "33 24 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
        v1_quota("/a/b", least == 1 ? "100000\n" : "900000\n", "100000\n");
        put_file("/sys/fs/cgroup/unified/user/cpu.max", least == 2 ? "100000 100000\n" : "900000 100000\n");
        EXPECT_LIMIT(1);
    }
}

CASE(garbage_does_not_limit)
{
    static const char *const garbage[] = {"",
                                          "\n",
                                          "x y\n",
                                          "-5 100000\n",
                                          "0 100000\n",
                                          "5 0\n",
                                          "5 -100000\n",
                                          "100000\n",
                                          "\xff\xfe",
                                          "max max\n",
                                          "NaN 100000\n",
                                          "9223372036854775807 100000\n",
                                          "4294967297 1\n"};
    for (size_t i = 0; i < sizeof garbage / sizeof garbage[0]; i++) {
        v2("/app", V2_MOUNT);
        put_file("/sys/fs/cgroup/app/cpu.max", garbage[i]);
        EXPECT_NO_LIMIT();
    }
    static const char *const groups[] = {"", "\n", "0:\n", "0::\n", "::::\n", "nothing at all", "0::relative\n"};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        v1(groups[i], V2_MOUNT V1_MOUNT);
        put_file("/sys/fs/cgroup/app/cpu.max", "100000 100000\n");
        EXPECT_NO_LIMIT();
    }
    static const char *const mounts[] = {"", "\n", " - \n", "30 23 0:26 / - cgroup2\n", "- cgroup2 cgroup2 rw\n", "30"};
    for (size_t i = 0; i < sizeof mounts / sizeof mounts[0]; i++) {
        v2("/app", mounts[i]);
        put_file("/sys/fs/cgroup/app/cpu.max", "100000 100000\n");
        EXPECT_NO_LIMIT();
    }
}

CASE(very_long_names_do_no_harm)
{
    char *group = malloc(4000);
    for (int i = 0; i < 3999; i++)
        group[i] = i % 200 == 0 ? '/' : 'g';
    group[3999] = '\0';
    v2(group, V2_MOUNT);
    put_file("/sys/fs/cgroup/cpu.max", "100000 100000\n");
    free(group);
    EXPECT_LIMIT(1);
}
