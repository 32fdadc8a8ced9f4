package state

import "strings"

// unsupported lists the state modules of Salt 3007 that Brine lacks.
const unsupported = " acme ansible apache appx apt artifactory assistive at aws_sqs bigip boto3_elasticache boto3_elasticsearch " +
	"boto3_route53 boto3_sns boto_apigateway boto_asg boto_cfn boto_cloudfront boto_cloudtrail boto_cloudwatch_alarm " +
	"boto_cloudwatch_event boto_cognitoidentity boto_datapipeline boto_dynamodb boto_ec2 boto_elasticache boto_elasticsearch_domain " +
	"boto_elb boto_elbv2 boto_iam boto_iam_role boto_iot boto_kinesis boto_kms boto_lambda boto_lc boto_rds boto_route53 boto_s3 " +
	"boto_s3_bucket boto_secgroup boto_sns boto_sqs boto_vpc bower btrfs buildout cabal ceph certutil chef chronos_job cimc cisconso " +
	"cloud composer consul cryptdev csf ddns dellchassis dism docker_container docker_image docker_network docker_volume drac dvs " +
	"elasticsearch elasticsearch_index elasticsearch_index_template esxcluster esxdatacenter esxi esxvm etcd ethtool firewall github " +
	"glance_image glassfish glusterfs gnomedesktop grafana grafana4_dashboard grafana4_datasource grafana4_org grafana4_user " +
	"grafana_dashboard grafana_datasource heat highstate_doc icinga2 idem ifttt incron influxdb08_database influxdb08_user " +
	"influxdb_continuous_query influxdb_database influxdb_retention_policy influxdb_user infoblox_a infoblox_cname infoblox_host_record " +
	"infoblox_range ipmi jboss7 jenkins junos kapacitor kernelpkg keyboard keychain keystone keystone_domain keystone_endpoint " +
	"keystone_group keystone_project keystone_role keystone_role_grant keystone_service keystone_user keystore kubernetes ldap lgpo " +
	"lgpo_reg libcloud_dns libcloud_loadbalancer libcloud_storage license logrotate lvs_server lvs_service lxc lxd lxd_container " +
	"lxd_image lxd_profile marathon_app memcached modjk modjk_worker mongodb_database mongodb_user monit mssql_database mssql_login " +
	"mssql_role mssql_user msteams napalm_yang netacl netconfig netntp netsnmp netusers network neutron_network neutron_secgroup " +
	"neutron_secgroup_rule neutron_subnet nexus nfs_export nftables nxos openvswitch_bridge openvswitch_db openvswitch_port opsgenie " +
	"pagerduty pagerduty_escalation_policy pagerduty_schedule pagerduty_service pagerduty_user panos pbm pcs pdbedit pecl pkgbuild " +
	"pkgng postgres_initdb powercfg powerpath probes proxy pushover pyenv pyrax_queues quota rabbitmq_cluster rabbitmq_upstream raid " +
	"rbac rbenv redis reg restconf rsync rvm salt_proxy serverdensity_device shortcut slack smtp snapper solrcloud splunk splunk_search " +
	"sqlite3 statuspage svn sysfs syslog_ng system task telemetry_alert testinfra tls tomcat trafficserver tuned uptime vagrant vault " +
	"vbox_guest victorops virt winrepo wordpress wua wusa xattr xml xmpp zabbix_action zabbix_host zabbix_hostgroup zabbix_mediatype " +
	"zabbix_template zabbix_user zabbix_usergroup zabbix_usermacro zabbix_valuemap zenoss zfs zk_concurrency zookeeper zpool "

// Unsupported reports whether Salt has a state module with this name that Brine
// lacks.
func Unsupported(module string) bool {
	return !strings.Contains(module, " ") && strings.Contains(unsupported, " "+module+" ")
}
